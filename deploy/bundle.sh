#!/usr/bin/env bash
# bundle.sh: gather built programs and their private libraries into a folder that runs on another Linux machine.
#
#   bash deploy/bundle.sh [--build DIR] [--out DIR] [--without-blas] [PART...]
#
# PART is daemon, cli, tests or bench (default: daemon cli). Each part becomes OUT/PART/{bin,lib}; every program finds its
# libraries by a $ORIGIN-relative run path. In OUT/tests `ctest -L gpu` and `ctest -L unit` work. The C library itself is
# not bundled: the target needs glibc of this machine or newer, and for the CUDA plugin an NVIDIA driver.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/release
out=dist
with_blas=1
max_mb=60 # what fits through the narrowest way to a test machine
parts=()
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --without-blas) with_blas=''; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    daemon | cli | tests | bench) parts+=("$1"); shift ;;
    *) echo "bundle.sh: unknown argument '$1' (try --help)" >&2; exit 2 ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || parts=(daemon cli)
command -v patchelf >/dev/null || { echo "bundle.sh: patchelf is missing: apt-get install -y patchelf" >&2; exit 2; }
[ -d "$build/bin" ] || { echo "bundle.sh: no programs in $build/bin; build first: cmake --preset release && cmake --build --preset release" >&2; exit 1; }

programs_of() {
    case $1 in
    daemon) ls "$build"/bin/decomposekd "$build"/bin/decomposek-{tune,bench-inproc} ;;
    cli) ls "$build"/bin/decomposek ;;
    tests) find "$build/bin" -maxdepth 1 -type f -executable \( -name 'test_*' -o -name 'probe_*' \) ;;
    bench) find "$build/bin" -maxdepth 1 -type f -executable \( -name 'bench_*' -o -name wake_pingpong -o -name decomposek -o -name decomposek-tune -o -name decomposek-bench-inproc \) ;;
    esac
}

# The C library and the loader belong to the target machine.
is_system_library() {
    case $1 in
    ld-linux* | libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | linux-vdso.*) return 0 ;;
    *) return 1 ;;
    esac
}

bundle_libraries() { # files... -> $folder/lib
    local library path
    ldd "$@" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u | while read -r library path; do
        is_system_library "$library" && continue
        [ -e "$folder/lib/$library" ] || cp -L "$path" "$folder/lib/$library"
    done
}

# The tests as CTest knows them, with programs beside the file: `ctest -L gpu` runs in the bundle's folder. Those of
# the client start the command line where it was built, so they stay behind.
write_test_list() { # -> $folder/CTestTestfile.cmake
    local built
    built=$(cd "$build" && pwd)
    find "$build/tests" -name CTestTestfile.cmake -not -path '*/unit/client/*' -print0 | sort -z |
        xargs -0 sed -n -E "s#\"$built/bin/#\"bin/#g; s# _BACKTRACE_TRIPLES \"[^\"]*\"##; /^(add_test|set_tests_properties)\(/p" \
            >"$folder/CTestTestfile.cmake"
    if grep -nF "$built" "$folder/CTestTestfile.cmake" >&2; then
        echo "bundle.sh: these tests need files of the build folder" >&2
        exit 1
    fi
}

for part in "${parts[@]}"; do
    folder=$out/$part
    rm -rf "$folder"
    mkdir -p "$folder/bin" "$folder/lib"
    mapfile -t programs < <(programs_of "$part")
    [ ${#programs[@]} -gt 0 ] || { echo "bundle.sh: nothing built for part '$part' in $build/bin" >&2; exit 1; }
    cp "${programs[@]}" "$folder/bin/"
    bundle_libraries "${programs[@]}" # before the run path changes
    if [ "$part" != cli ]; then
        [ -e "$build/lib/libdecomposek_cuda.so" ] && cp "$build/lib/libdecomposek_cuda.so" "$folder/lib/"
        # OpenBLAS is loaded with dlopen, so ldd does not show it. The tests do without it.
        blas=''
        [ -z "$with_blas" ] || [ "$part" = tests ] || blas=$(ldconfig -p | awk '/libopenblas\.so\.0 /{print $NF; exit}')
        if [ -n "$blas" ]; then
            cp -L "$blas" "$folder/lib/libopenblas.so.0"
            bundle_libraries "$blas"
        fi
    fi
    if [ "$part" = tests ]; then
        cp "$build"/lib/libfake_*.so "$folder/lib/" # stand-ins for the plugin
        write_test_list
    fi
    find "$folder/bin" -type f -exec strip --strip-unneeded {} +
    find "$folder/bin" -type f -exec patchelf --set-rpath "\$ORIGIN/../lib" {} +
    find "$folder/lib" -type f -exec patchelf --set-rpath "\$ORIGIN" {} +
    printf '%s\t%s\n' "$(du -sh "$folder" | cut -f1)" "$folder"
    [ "$(du -sm "$folder" | cut -f1)" -lt "$max_mb" ] || { echo "bundle.sh: $folder has $max_mb MB or more" >&2; exit 1; }
done
