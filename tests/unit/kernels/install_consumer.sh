#!/bin/sh
# install_consumer.sh BUILD_DIR C_COMPILER SOURCE: install the library alone, build a program through pkg-config, run it.
set -eu
build=$1 compiler=$2 source=$3
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$build" --component libdecomposek --prefix "$prefix" >/dev/null
pc=$(find "$prefix" -name decomposek.pc)
test -n "$pc"
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
# The file names the configured prefix; this installation lives elsewhere.
flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs decomposek)
library_dir=$(pkg-config --define-variable=prefix="$prefix" --variable=libdir decomposek)
"$compiler" -std=c11 -Wall -Wextra -Werror "$source" -o "$prefix/consumer" $flags
readelf -d "$library_dir/libdecomposek.so" | grep -q 'SONAME.*libdecomposek\.so\.0'
LD_LIBRARY_PATH="$library_dir" "$prefix/consumer"
