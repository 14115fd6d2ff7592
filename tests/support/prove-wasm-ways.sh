#!/usr/bin/env bash
# Proves that the guests build from source in each way that wasm-target.sh knows, from a state in which it is the only one.
#
#   prove-wasm-ways.sh                     all of them: none installed rustup debian cached
#   prove-wasm-ways.sh installed rustup    some
#
# `rustup` and `debian` need a network; `debian` takes minutes. Nothing outside a temporary directory changes: the
# Rust that is tried without its target is a copy. PROVE_DIR=DIR keeps the directory, and with it what was fetched.
set -euo pipefail

here=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
examples=$(cd "$here/../../examples" && pwd)
dir=${PROVE_DIR:-$(mktemp -d)}
mkdir -p "$dir"
[[ -n ${PROVE_DIR:-} ]] || trap 'rm -rf "$dir"' EXIT
unset RUSTC RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET CARGO_TARGET_DIR COFFERDAM_WASM_SKIP
readonly EVERY=(installed cached rustup debian)

say() { printf '== %s\n' "$*"; }

# Builds the guests from nothing with way $1 alone.
build() {
  local skip=() way out=$dir/target-$1
  for way in "${EVERY[@]}"; do [[ $way == "$1" ]] || skip+=("$way"); done
  rm -rf "$out"
  (cd "$examples" && COFFERDAM_WASM_SKIP="${skip[*]}" COFFERDAM_WASM_HOME=$dir/cache CARGO_TARGET_DIR=$out \
    "$here/wasm-target.sh" run cargo build --release --locked --target wasm32-wasip2)
  local guest count=0
  for guest in "$out"/wasm32-wasip2/release/*.wasm; do
    # a component, not a core module: version 13, layer 1
    [[ $(od -An -tx1 -N8 "$guest" | tr -d ' ') == 0061736d0d000100 ]] || { say "$1: $guest is no component"; return 1; }
    count=$((count + 1))
  done
  [[ $count == $(find "$examples" -mindepth 2 -maxdepth 2 -name Cargo.toml | wc -l) ]] || { say "$1: $count guests"; return 1; }
  say "$1: $count guests, built from source"
}

# A copy of the Rust in use, without the target.
rust_without_target() {
  local home=${RUSTUP_HOME:-$HOME/.rustup} toolchain
  toolchain=$(rustup show active-toolchain | sed -n '1s/ .*//p')
  rm -rf "$dir/rustup"
  mkdir -p "$dir/rustup/toolchains"
  cp -r "$home/toolchains/$toolchain" "$dir/rustup/toolchains/"
  cp "$home/settings.toml" "$dir/rustup/"
  export RUSTUP_HOME=$dir/rustup RUSTUP_TOOLCHAIN=$toolchain
  rustup target remove wasm32-wasip2 2>/dev/null || true
  ! rustc --print target-libdir --target wasm32-wasip2 2>/dev/null | xargs -r ls 2>/dev/null | grep -q libstd- ||
    { say "the copy still has the target"; return 1; }
}

prove() {
  case $1 in
    none)
      local said
      if said=$(COFFERDAM_WASM_SKIP="${EVERY[*]}" "$here/wasm-target.sh" rustc 2>&1); then say "none: succeeded"; return 1; fi
      grep -q 'rustup target add wasm32-wasip2' <<<"$said" || { say "none: $said"; return 1; }
      say "none: refused, with the fix" ;;
    installed) build installed ;;
    rustup) (rust_without_target && build rustup) ;;
    debian) (rust_without_target && build debian) ;;
    cached) # the toolchain `debian` left is found again
      [[ -x $dir/cache/v1/bin/rustc ]] || prove debian
      (rust_without_target && build cached) ;;
    *) say "no such way: $1"; return 2 ;;
  esac
}

for way in ${@:-none installed rustup debian cached}; do prove "$way"; done
say "proven: ${*:-none installed rustup debian cached}"
