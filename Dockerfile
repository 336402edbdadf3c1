# docker build -t gateway .
# docker run -p 8080:8080 -v ./gateway.yaml:/etc/gateway/gateway.yaml gateway
#
# The file must say `listen: 0.0.0.0:8080`: on 127.0.0.1, nobody outside the container is heard.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# What the profile-guided build trains with. Without it, or without llvm-tools, bench/pgo makes the plain release build.
RUN apt-get update && apt-get install -y --no-install-recommends python3 redis-server || true
RUN bench/pgo
# The image's own file, for a first look: heard outside of the container.
RUN sed -i 's/^listen: 127\.0\.0\.1:/listen: 0.0.0.0:/' gateway.yaml && grep -q '^listen: 0\.0\.0\.0:8080$' gateway.yaml

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin gateway
# Whom to trust, of Redis's TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/target/pgo/gateway /usr/local/bin/gateway
COPY --from=build /src/LICENSE-MIT /src/LICENSE-APACHE /usr/share/doc/gateway/
COPY --from=build /src/gateway.yaml /etc/gateway/gateway.yaml

USER 10001
EXPOSE 8080
# SIGTERM drains: give it longer than `server.drain` before it is killed (docker stop --time 35).
STOPSIGNAL SIGTERM

# The image has no HTTP client, and needs none: bash opens the connection. Where `admin` has another port, set ADMIN_PORT.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 CMD ["bash", "-c", \
    "exec 3<>/dev/tcp/127.0.0.1/${ADMIN_PORT:-9090} && printf 'GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ]"]

ENTRYPOINT ["/usr/local/bin/gateway"]
CMD ["run", "--config", "/etc/gateway/gateway.yaml"]
