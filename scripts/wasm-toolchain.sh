#!/bin/sh
# Finds or makes a Rust standard library for wasm32-unknown-unknown.
#
# Tries, in this order: the active toolchain; `rustup target add`; the sources that Debian packages as rustc-web,
# rust-web-src and lld, built once into a sysroot of our own under target/wasm-toolchain.
# Writes target/wasm-toolchain/env, one NAME=VALUE a line (FULMAR_WASM_RUSTC, where another compiler must be used).
# Exit status: 0 ready, 3 skipped with the reason on standard error.
# FULMAR_WASM_NO_RUSTUP=1 leaves out the first two ways.
set -eu

target=wasm32-unknown-unknown
root=$(cd "$(dirname "$0")/.." && pwd)
out=$root/target/wasm-toolchain
mkdir -p "$out"

has_std() {
  dir=$("$1" --print target-libdir --target "$target" 2>/dev/null) && ls "$dir"/libstd-*.rlib >/dev/null 2>&1
}

ready() { # message, content of the env file
  printf '%s' "$2" >"$out/env"
  echo "wasm: $1"
  exit 0
}

skip() {
  rm -f "$out/env"
  echo "$1" >&2
  exit 3
}

if [ "${FULMAR_WASM_NO_RUSTUP:-0}" != 1 ]; then
  has_std rustc && ready "the active toolchain has $target" ""
  if command -v rustup >/dev/null; then
    if timeout 180 rustup target add "$target" >"$out/rustup.log" 2>&1 && has_std rustc; then
      ready "rustup added $target" ""
    fi
    echo "wasm: rustup could not add $target: $(tail -n 1 "$out/rustup.log" | cut -c1-160)" >&2
  fi
fi

# Debian's compiler, with its standard library compiled here from the packaged sources.
rustc=/usr/bin/rustc
packages="apt-get install rustc-web rust-web-src lld-19"
release=$("$rustc" -vV 2>/dev/null | sed -n 's/^release: //p') || release=
[ -n "$release" ] || skip "rustup has no $target and Debian's rustc is not installed ($packages)"
oldest=$(printf '1.88.0\n%s\n' "$release" | sort -V | head -n 1)
[ "$oldest" = 1.88.0 ] || skip "Debian's rustc must be 1.88 or later: got $release"
sources=/usr/src/rustc-$release/library
[ -f "$sources/Cargo.lock" ] && [ -d "$sources/vendor" ] || skip "$sources is missing ($packages)"
host=$("$rustc" -vV | sed -n 's/^host: //p')
lld=
for candidate in "$(rustc --print sysroot)/lib/rustlib/$host/bin/rust-lld" /usr/bin/lld-22 /usr/bin/lld-19 /usr/bin/lld; do
  [ -x "$candidate" ] && { lld=$candidate; break; }
done
[ -n "$lld" ] || skip "no lld is installed ($packages)"

key=$("$rustc" -vV | cksum | cut -d' ' -f1)-$(cksum <"$sources/Cargo.lock" | cut -d' ' -f1)
sysroot=$out/sysroot-$release-$key
if [ ! -f "$sysroot/.complete" ]; then
  echo "wasm: compiling the standard library $release from $sources (about 80 s, once)" >&2
  work=$out/build
  rm -rf "$work" "$sysroot"
  mkdir -p "$work/src" "$work/.cargo" "$sysroot/bin" "$sysroot/lib/rustlib/$target/lib" "$sysroot/lib/rustlib/$host/bin"
  printf '[package]\nname = "sysroot"\nversion = "0.1.0"\nedition = "2021"\n[profile.release]\nopt-level = 3\n[workspace]\n' \
    >"$work/Cargo.toml"
  : >"$work/src/lib.rs"
  printf '[source.crates-io]\nreplace-with = "vendored"\n[source.vendored]\ndirectory = "%s"\n' "$sources/vendor" \
    >"$work/.cargo/config.toml"
  (
    cd "$work"
    env -u RUSTC_WRAPPER -u CARGO_ENCODED_RUSTFLAGS -u CARGO_TARGET_DIR -u CARGO_BUILD_TARGET \
      RUSTC="$rustc" RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Cembed-bitcode=yes __CARGO_TESTS_ONLY_SRC_ROOT="$sources" \
      cargo build --release --offline --target "$target" -Zbuild-std=std,panic_abort
  ) >"$out/std.log" 2>&1 || skip "the standard library did not compile: $(tail -n 1 "$out/std.log" | cut -c1-160)"
  cp "$work/target/$target/release/deps/"lib*.rlib "$sysroot/lib/rustlib/$target/lib/"
  rm -f "$sysroot/lib/rustlib/$target/lib/"libsysroot*
  ln -s "/usr/lib/rustlib/$host/lib" "$sysroot/lib/rustlib/$host/lib"
  ln -s "$lld" "$sysroot/lib/rustlib/$host/bin/rust-lld"
  printf '#!/bin/sh\nexec %s --sysroot "%s" "$@"\n' "$rustc" "$sysroot" >"$sysroot/bin/rustc"
  chmod +x "$sysroot/bin/rustc"
  rm -rf "$work"
  : >"$sysroot/.complete"
fi
has_std "$sysroot/bin/rustc" || skip "the sysroot $sysroot is not usable"
ready "the standard library $release is in $sysroot" "FULMAR_WASM_RUSTC=$sysroot/bin/rustc
"
