//! Counters → families, when somebody asks.

use std::{
    collections::BTreeMap,
    fmt::{Error, Result},
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
};

use limiter_core::Health;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeCounterValue, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};

use super::{
    Counters, Endpoints, Gauges, LimitMetrics, LimitOutcome, Named, ReloadKind, Sheds, Traffic, cells::Summed,
    handles::ERROR_KINDS, process::Process,
};

/// The counters of every name, as they are at the moment.
type Listed<T> = BTreeMap<Arc<str>, Arc<T>>;

impl Collector for Counters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result {
        let to = &mut encoder;
        let gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.encode_requests(to)?;
        encode_limits(to, &listed(&self.limits))?;
        self.encode_store(to, &gauges)?;
        self.encode_config(to)?;
        encode_upstreams(to, &listed(&self.upstreams), &gauges.endpoints)?;
        encode_shedding(to, &listed(&self.sheds), &gauges.concurrency_limits)?;
        self.encode_process(to)
    }
}

impl Counters {
    fn encode_requests(&self, to: &mut DescriptorEncoder<'_>) -> Result {
        let routes = listed(&self.routes);
        let mut family = counter(to, "gateway_requests", "Requests answered, by route and status")?;
        encode_codes(&mut family, "route", &routes)?;
        let mut family = histogram(
            to,
            "gateway_request_duration_seconds",
            "From a request's head to the end of its answer",
        )?;
        for (route, traffic) in &routes {
            put_histogram(&mut family.encode_family(&[("route", &**route)])?, &traffic.durations())?;
        }
        let mut family = gauge(to, "gateway_in_flight_requests", "Requests that are being answered")?;
        family.encode_gauge(&self.in_flight.get())?;
        let mut family = gauge(
            to,
            "gateway_waiting_requests",
            "Requests that wait for their turn in the queue of a limit",
        )?;
        family.encode_gauge(&self.waits.waiting())?;
        let mut family = histogram(
            to,
            "gateway_wait_duration_seconds",
            "How long requests waited for their turn",
        )?;
        put_histogram(&mut family, &self.waits.durations())?;
        gauge(to, "gateway_connections", "Client connections that are open")?.encode_gauge(&self.connections.get())
    }

    fn encode_store(&self, to: &mut DescriptorEncoder<'_>, gauges: &Gauges) -> Result {
        let mut family = histogram(to, "gateway_store_duration_seconds", "Calls of the shared store")?;
        put_histogram(&mut family, &self.store.durations())?;
        let mut family = histogram(
            to,
            "gateway_store_batch_requests",
            "Requests decided in one call of the shared store",
        )?;
        put_histogram(&mut family, &self.store.batches())?;
        let mut family = counter(
            to,
            "gateway_store_errors",
            "Calls and probes of the shared store without a usable answer, and what else went wrong there",
        )?;
        for (at, kind) in ERROR_KINDS.iter().enumerate() {
            put_counter(&mut family.encode_family(&[("kind", *kind)])?, &self.store.errors(at))?;
        }
        let mut family = gauge(to, "gateway_store_state", "1 for the state that the store is in")?;
        for (state, word) in [
            (Health::Connected, "connected"),
            (Health::Degraded, "degraded"),
            (Health::Down, "down"),
        ] {
            family
                .encode_family(&[("state", word)])?
                .encode_gauge(&i64::from(gauges.store == Some(state)))?;
        }
        let mut family = gauge(
            to,
            "gateway_live_gateways",
            "Gateways that share the store, as last seen",
        )?;
        family.encode_gauge(&i64::from(gauges.live_gateways))?;
        let mut family = gauge(to, "gateway_memory_store_keys", "Counters held in this process")?;
        family.encode_gauge(&gauges.memory_store_keys)
    }

    fn encode_config(&self, to: &mut DescriptorEncoder<'_>) -> Result {
        let mut family = counter(
            to,
            "gateway_config_reloads",
            "Reloads of the configuration, by how they ended",
        )?;
        for kind in ReloadKind::ALL {
            let reloads = self.reloads[kind as usize].load(Relaxed);
            put_counter(&mut family.encode_family(&[("outcome", kind.as_str())])?, &reloads)?;
        }
        let name = "gateway_config_loaded_timestamp_seconds";
        gauge(to, name, "Since when the configuration is in force")?.encode_gauge(&secs(self.loaded_at.load(Relaxed)))
    }

    fn encode_process(&self, to: &mut DescriptorEncoder<'_>) -> Result {
        let mut family = gauge(to, "gateway_build_info", "1, with the version that is running")?;
        family
            .encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?
            .encode_gauge(&1_i64)?;
        let process = Process::read();
        if let Some(seconds) = process.cpu_seconds {
            put_counter(
                &mut counter(to, "process_cpu_seconds", "User and system time")?,
                &seconds,
            )?;
        }
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Memory in use", process.resident_bytes),
            ("process_virtual_memory_bytes", "Memory mapped", process.virtual_bytes),
            ("process_open_fds", "File descriptors in use", process.open_fds),
            ("process_max_fds", "File descriptors at most", process.max_fds),
            ("process_threads", "Threads", process.threads),
        ] {
            if let Some(value) = value {
                gauge(to, name, help)?.encode_gauge(&value)?;
            }
        }
        let started = secs(self.started.as_micros());
        gauge(to, "process_start_time_seconds", "When the process began")?.encode_gauge(&started)
    }
}

fn encode_limits(to: &mut DescriptorEncoder<'_>, limits: &Listed<LimitMetrics>) -> Result {
    let mut family = counter(to, "gateway_limit_decisions", "What limits said of requests")?;
    for (limit, metrics) in limits {
        for outcome in LimitOutcome::ALL {
            let labels = [("limit", &**limit), ("outcome", outcome.as_str())];
            put_counter(&mut family.encode_family(&labels)?, &metrics.outcome(outcome))?;
        }
    }
    let mut family = counter(
        to,
        "gateway_local_refusals",
        "Refusals of limits that were repeated from memory",
    )?;
    for (limit, metrics) in limits {
        put_counter(&mut family.encode_family(&[("limit", &**limit)])?, &metrics.repeated())?;
    }
    let mut family = histogram(
        to,
        "gateway_limit_used_ratio",
        "Share of the quota in use, at each decision",
    )?;
    for (limit, metrics) in limits {
        put_histogram(&mut family.encode_family(&[("limit", &**limit)])?, &metrics.used())?;
    }
    Ok(())
}

fn encode_upstreams(to: &mut DescriptorEncoder<'_>, upstreams: &Listed<Traffic>, endpoints: &[Endpoints]) -> Result {
    let mut family = counter(
        to,
        "gateway_upstream_requests",
        "Requests sent to an upstream, by the status of its answer",
    )?;
    encode_codes(&mut family, "upstream", upstreams)?;
    let mut family = histogram(
        to,
        "gateway_upstream_duration_seconds",
        "From sending a request to the head of its answer",
    )?;
    for (upstream, traffic) in upstreams {
        put_histogram(
            &mut family.encode_family(&[("upstream", &**upstream)])?,
            &traffic.durations(),
        )?;
    }
    let mut family = gauge(
        to,
        "gateway_upstream_endpoints",
        "Endpoints, by whether requests are sent to them",
    )?;
    for Endpoints {
        upstream,
        available,
        ejected,
    } in endpoints
    {
        for (state, number) in [("available", available), ("ejected", ejected)] {
            let labels = [("upstream", &**upstream), ("state", state)];
            family.encode_family(&labels)?.encode_gauge(number)?;
        }
    }
    Ok(())
}

fn encode_shedding(to: &mut DescriptorEncoder<'_>, sheds: &Listed<Sheds>, limits: &[(Arc<str>, u64)]) -> Result {
    let mut family = counter(to, "gateway_upstream_shed", "Requests that an upstream had no room for")?;
    for (upstream, sheds) in sheds {
        put_counter(&mut family.encode_family(&[("upstream", &**upstream)])?, &sheds.get())?;
    }
    let mut family = gauge(
        to,
        "gateway_upstream_concurrency_limit",
        "Requests that may be at an upstream at once, as found by its latency",
    )?;
    for (upstream, limit) in limits {
        family
            .encode_family(&[("upstream", &**upstream)])?
            .encode_gauge(limit)?;
    }
    Ok(())
}

fn encode_codes(family: &mut MetricEncoder<'_>, label: &str, all: &Listed<Traffic>) -> Result {
    for (name, traffic) in all {
        for (code, requests) in traffic.codes() {
            let code = code.to_string();
            put_counter(
                &mut family.encode_family(&[(label, &**name), ("code", &code)])?,
                &requests,
            )?;
        }
    }
    Ok(())
}

fn listed<T>(all: &Named<T>) -> Listed<T> {
    all.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

type Family<'a> = core::result::Result<MetricEncoder<'a>, Error>;

/// A counter's name is without the `_total` that its samples bear.
fn counter<'a>(to: &'a mut DescriptorEncoder<'_>, name: &'a str, help: &str) -> Family<'a> {
    to.encode_descriptor(name, help, None, MetricType::Counter)
}

fn gauge<'a>(to: &'a mut DescriptorEncoder<'_>, name: &'a str, help: &str) -> Family<'a> {
    to.encode_descriptor(name, help, None, MetricType::Gauge)
}

fn histogram<'a>(to: &'a mut DescriptorEncoder<'_>, name: &'a str, help: &str) -> Family<'a> {
    to.encode_descriptor(name, help, None, MetricType::Histogram)
}

fn put_counter(to: &mut MetricEncoder<'_>, value: &impl EncodeCounterValue) -> Result {
    to.encode_counter::<NoLabelSet, _, f64>(value, None)
}

fn put_histogram(to: &mut MetricEncoder<'_>, summed: &Summed) -> Result {
    to.encode_histogram::<NoLabelSet>(summed.sum, summed.count, &summed.buckets, None)
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn secs(micros: u64) -> f64 {
    micros as f64 / 1e6
}
