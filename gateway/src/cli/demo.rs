//! `gateway demo`: the shipped configuration on this machine, in front of an echo backend of its own.

mod echo;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::config::{self, Config, Endpoint, Overrides};

/// The configuration that is shipped.
const SHIPPED: &str = include_str!("../../../gateway.yaml");
const FILE: &str = "gateway.yaml";

/// Serves `./gateway.yaml`, or a copy of the shipped one where there is none.
pub(super) fn demo() -> ExitCode {
    let path = match file() {
        Ok(path) => path,
        Err(error) => {
            eprintln!("gateway: the demo's configuration cannot be written: {error}");
            return ExitCode::from(super::FAILED);
        }
    };
    let config = match config::load(&path) {
        Ok(config) => config,
        Err(error) => {
            super::print_problems(&error);
            return ExitCode::from(super::WRONG);
        }
    };
    let echo = match echo::start() {
        Ok(address) => address,
        Err(error) => {
            eprintln!("gateway: the demo's backend cannot be started: {error}");
            return ExitCode::from(super::FAILED);
        }
    };
    let overrides = overrides(&config, echo);
    super::print(&what_to_try(&path, &overrides, echo));
    super::run(path, overrides)
}

/// The file to serve. A copy is written to a folder for temporary files, not to one that may be anything.
fn file() -> io::Result<PathBuf> {
    let here = Path::new(FILE);
    if here.exists() {
        return Ok(here.to_owned());
    }
    let folder = std::env::temp_dir().join(format!("gateway-demo-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(FILE);
    std::fs::write(&path, SHIPPED)?;
    Ok(path)
}

/// Loopback only, in memory, and in front of `echo`.
fn overrides(config: &Config, echo: SocketAddr) -> Overrides {
    Overrides {
        listen: Some(vec![free(config.listen.first().map_or(8080, SocketAddr::port))]),
        admin: Some(free(config.admin.address.port())),
        memory_store: true,
        endpoint: Some(Endpoint {
            host: echo.ip().to_string(),
            port: echo.port(),
            weight: 1,
        }),
    }
}

/// `port` on loopback, or another where that is taken: a first look should not fail for somebody else's server.
fn free(port: u16) -> SocketAddr {
    let wanted = loopback(port);
    let bound = TcpListener::bind(wanted).or_else(|_| TcpListener::bind(loopback(0)));
    bound.and_then(|listener| listener.local_addr()).unwrap_or(wanted)
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn what_to_try(path: &Path, overrides: &Overrides, echo: SocketAddr) -> String {
    let gateway = overrides
        .listen
        .iter()
        .flatten()
        .next()
        .map_or_else(|| loopback(8080), |address| *address);
    let admin = overrides.admin.unwrap_or_else(|| loopback(9090));
    let path = path.display();
    format!(
        r#"
Serving {path} on http://{gateway}, in front of an echo backend on http://{echo}.
In another terminal, try:

  # 200, from the backend; the RateLimit fields say what is left
  curl -i http://{gateway}/v1/hello -H 'x-user-id: alice'

  # five pass in 10 s, the others get 429
  for i in 1 2 3 4 5 6 7; do curl -s -o /dev/null -w '%{{http_code}}\n' http://{gateway}/v1/hello -H 'x-user-id: bob'; done

  # 429 with Retry-After, and which limit refused
  curl -i http://{gateway}/v1/hello -H 'x-user-id: bob'

  # change the file: in force within a second, without a restart; bob passes again, and what he used stays used
  sed -i.orig 's/limit: 5 /limit: 50 /' '{path}'; sleep 1
  curl -i http://{gateway}/v1/hello -H 'x-user-id: bob'

  # a mistake changes nothing, and the log here says where it is
  sed -i.bak 's/limit: 50 /limt: 50 /' '{path}'; sleep 1
  curl -s http://{admin}/api/status

  # as it was
  mv '{path}.orig' '{path}'; rm '{path}.bak'

  # what the gateway counts
  curl -s http://{admin}/metrics | grep gateway_limit_decisions_total

Ctrl-C ends it.

"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_file_is_right() {
        let config = config::parse_with("gateway.yaml", SHIPPED, &|_| None).unwrap_or_else(|error| panic!("{error}"));
        let algorithms: std::collections::BTreeSet<_> = config
            .limits
            .iter()
            .map(|layer| layer.policy.algorithm().name())
            .collect();
        assert_eq!(algorithms.len(), 5, "it shows all five algorithms: {algorithms:?}");
    }

    #[test]
    fn the_edits_that_are_printed_fit_the_shipped_file() {
        assert_eq!(SHIPPED.matches("limit: 5 ").count(), 1);
        let edited = SHIPPED.replace("limit: 5 ", "limit: 50 ");
        assert!(config::parse_with("gateway.yaml", &edited, &|_| None).is_ok());
        let broken = edited.replace("limit: 50 ", "limt: 50 ");
        let error = config::parse_with("gateway.yaml", &broken, &|_| None).unwrap_err();
        assert!(error.to_string().contains("did you mean `limit`?"), "{error}");
    }
}
