#!/usr/bin/env bash
# Installs what the tests need where it is missing, runs all of them, and ends with the totals.
# Arguments go to `cargo test`: `./test.sh --test integration reload` runs some.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

. .ci/packages

redis_major() {
    redis-server --version 2>/dev/null | sed -n 's/.* v=\([0-9]*\).*/\1/p'
}

need_redis() {
    if ! command -v redis-server >/dev/null; then
        if ! command -v apt-get >/dev/null; then
            echo "The tests need redis-server, 7.0 or newer, in PATH, and there is no apt-get here to install it with." >&2
            echo "With other package managers: brew install redis · dnf install redis · apk add redis · pacman -S valkey" >&2
            exit 1
        fi
        if [[ $EUID -ne 0 ]] && ! command -v sudo >/dev/null; then
            echo "The tests need redis-server. Install it as root (apt-get install redis-server), then run this again." >&2
            exit 1
        fi
        install redis-server
    fi
    local major
    major=$(redis_major)
    if [[ -n $major && $major -lt 7 ]]; then
        echo "The tests need redis-server 7.0 or newer; $(command -v redis-server) is $(redis-server --version)." >&2
        exit 1
    fi
}

# Tests that step the wall clock of a gateway need it.
need_faketime() {
    compgen -G '/usr/lib*/*/faketime/libfaketimeMT.so.1' >/dev/null && return
    compgen -G '/usr/lib*/faketime/libfaketimeMT.so.1' >/dev/null && return
    if ! may_install; then
        echo "The tests need libfaketime, and it cannot be installed from here: apt-get install libfaketime as root." >&2
        exit 1
    fi
    install libfaketime
}

need_redis
need_faketime
log=$(mktemp)
trap 'rm -f "$log"' EXIT

status=0
cargo test --workspace --all-features --no-fail-fast "$@" 2>&1 | tee "$log" || status=$?

# One line a test binary: "test result: ok. 12 passed; 0 failed; 1 ignored; …".
totals=$(awk '
    /^test result: / {
        for (i = 2; i <= NF; i++) {
            if ($i ~ /^passed/) passed += $(i - 1)
            if ($i ~ /^failed/) failed += $(i - 1)
        }
    }
    END { print passed + 0, failed + 0 }' "$log")
read -r passed failed <<<"$totals"

if [[ $((passed + failed)) -eq 0 ]]; then
    echo "No test ran." >&2
    exit $((status == 0 ? 1 : status))
fi
echo
echo "$passed passed, $failed failed"
exit "$status"
