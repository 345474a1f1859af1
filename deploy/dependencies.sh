#!/usr/bin/env bash
# Debian packages that the build and the tests need; sourced by quickstart.sh and tests/run.sh.
# Run by itself it installs one set: bash deploy/dependencies.sh build|test

DK_BUILD_PACKAGES=(build-essential cmake ninja-build pkg-config libmicrohttpd-dev libcjson-dev libuv1-dev
    libcmocka-dev libopenblas-pthread-dev libcurl4-openssl-dev zlib1g-dev libsystemd-dev curl python3 python3-numpy)
DK_TEST_PACKAGES=(clang clang-format clang-tidy libclang-rt-dev python3-venv locales procps util-linux
    systemd dpkg-dev file
    wrk libb64-0d) # libb64: perf_analyzer

# For the status page and for scaling out. The haproxy package may start a service: as shipped it listens nowhere.
DK_TEST_PACKAGES+=(chromium haproxy)

# Print those of the given packages that are not installed, one a line.
dk_missing_packages() {
    local installed
    # dpkg-query exits 1 when it does not know one of the names: that is an answer, not a fault.
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
    local package
    for package in "$@"; do
        grep -qxF "installed $package" <<<"$installed" || echo "$package"
    done
}

# dk_install_dependencies build|test: returns 0 when all are there; 2 when they cannot be installed from here.
dk_install_dependencies() {
    local wanted=("${DK_BUILD_PACKAGES[@]}")
    case "${1:-}" in
        build) ;;
        test) wanted+=("${DK_TEST_PACKAGES[@]}") ;;
        *)
            echo "dk_install_dependencies: unknown set '${1:-}': build or test" >&2
            return 2
            ;;
    esac
    if ! command -v dpkg-query >/dev/null; then
        echo "This is not a Debian system; install the equivalents of these by hand, then" >&2
        echo "set DK_SKIP_DEPENDENCIES=1: ${wanted[*]}" >&2
        [ -n "${DK_SKIP_DEPENDENCIES:-}" ] && return 0
        return 2
    fi
    local missing
    mapfile -t missing < <(dk_missing_packages "${wanted[@]}")
    [ "${#missing[@]}" -eq 0 ] && return 0
    if [ "$(id -u)" -ne 0 ]; then
        echo "Missing packages. Run this once, then start again:" >&2
        echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
        return 2
    fi
    echo "installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q || return 2
    apt-get install -y -q --no-install-recommends "${missing[@]}" || return 2
}

# dk_prometheus_tools DIR: print the folder that holds `prometheus` and `promtool`. Where they are not
# installed, the Debian package is unpacked under DIR instead of installed, because installing it starts a
# service on port 9090 that nobody asked for. Returns 1 when neither way works.
dk_prometheus_tools() {
    local found
    if found=$(command -v prometheus) && command -v promtool >/dev/null; then
        dirname "$found"
        return 0
    fi
    local dir=$1
    if [ ! -x "$dir/usr/bin/prometheus" ] || [ ! -x "$dir/usr/bin/promtool" ]; then
        local download
        download=$(mktemp -d) || return 1
        if [ "$(id -u)" -eq 0 ]; then
            apt-get update -q >&2 || true # a stale list may still do: the download below decides
        fi
        # As root apt would hand the download to user _apt, who may not write to a private folder.
        if ! (cd "$download" && apt-get -o APT::Sandbox::User=root download -q prometheus >&2) ||
            ! mkdir -p "$dir" || ! dpkg-deb -x "$download"/prometheus_*.deb "$dir"; then
            rm -rf "$download"
            return 1
        fi
        rm -rf "$download"
    fi
    echo "$dir/usr/bin"
}

# Debian's interpreter sees python3-numpy; another `python3` in front of it on PATH may not.
dk_python() {
    if [ -x /usr/bin/python3 ]; then echo /usr/bin/python3; else command -v python3; fi
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    dk_install_dependencies "${1:-}"
fi
