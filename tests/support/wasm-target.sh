#!/usr/bin/env bash
# Finds or makes a Rust that compiles for wasm32-wasip2, whatever this machine has.
#
#   wasm-target.sh rustc        print the rustc to build with (as RUSTC=); prints nothing where plain cargo will do
#   wasm-target.sh run CMD...   run CMD with it:  wasm-target.sh run cargo build --release --target wasm32-wasip2
#   wasm-target.sh status       say what would be used; fetches nothing (exit 1: nothing is there yet)
#
# The first of these that links a test program is used:
#   installed   the rustc in use ($RUSTC, else `rustc`) has the target
#   cached      the private toolchain that `debian` left behind
#   rustup      `rustup target add wasm32-wasip2`, with short limits
#   debian      on Debian (x86_64): rustc-web, its std source, lld and wasi-libc, unpacked into the cache (no root, no
#               change to the system), and std built from them once; some minutes, 140 MB fetched, 500 MB kept
#
# COFFERDAM_WASM_HOME   the cache; default ${XDG_CACHE_HOME:-$HOME/.cache}/cofferdam/wasm
# COFFERDAM_WASM_SKIP   ways not to try, for tests: words out of  installed cached rustup debian
#                       (and `lists`: with debian, do not use the system's package lists, fetch own ones)
set -euo pipefail
export LC_ALL=C

readonly TARGET=wasm32-wasip2
readonly HOST=x86_64-unknown-linux-gnu      # the one host that `debian` knows
readonly OLDEST=1.95                        # a rustc-web older than this cannot compile the guests
CACHE=${COFFERDAM_WASM_HOME:-${XDG_CACHE_HOME:-${HOME:?neither COFFERDAM_WASM_HOME nor HOME is set}/.cache}/cofferdam/wasm}
SYSROOT=$CACHE/v1                           # raise the number when its layout or the way std is built changes

say() { printf 'wasm target: %s\n' "$*" >&2; }
fail() { say "$*"; return 1; }
skipped() { [[ " ${COFFERDAM_WASM_SKIP:-} " == *" $1 "* ]]; }

# Does rustc $1 link a module for the target? Having its files is not enough: a linker may be missing.
links() {
  local root dir rc=1
  root=$("$1" --print sysroot 2>/dev/null) || return 1
  compgen -G "$root/lib/rustlib/$TARGET/lib/libstd-*.rlib" >/dev/null || return 1
  dir=$(mktemp -d)
  cat >"$dir/t.rs" <<'RS'
#[unsafe(no_mangle)]
pub extern "C" fn f(n: usize) -> usize { vec![1u8; n].len() + std::fs::read("x").map_or(0, |b| b.len()) }
RS
  if (cd "$dir" && env -u RUSTFLAGS "$1" --edition 2024 --crate-type cdylib --target $TARGET t.rs -o t.wasm) >"$dir/log" 2>&1 &&
    [[ -s $dir/t.wasm ]]; then rc=0; else sed 's/^/  /' "$dir/log" >&2; fi
  rm -rf "$dir"
  return $rc
}

# ---- rustup ----------------------------------------------------------------------------------------------------
add_by_rustup() {
  local toolchain limit=()
  command -v rustup >/dev/null || return 1
  toolchain=$(rustup show active-toolchain 2>/dev/null | sed -n '1s/ .*//p')
  [[ -n $toolchain ]] || return 1
  say "rustup target add --toolchain $toolchain $TARGET"
  # rustup's own limits are narrow; the outer one is wide, since an install cut in half is worse than a wait
  if command -v timeout >/dev/null; then limit=(timeout -k 5 180); fi
  RUST_BACKTRACE=0 RUSTUP_MAX_RETRIES=0 RUSTUP_DOWNLOAD_TIMEOUT=20 ${limit[@]+"${limit[@]}"} \
    rustup target add --toolchain "$toolchain" $TARGET >&2 </dev/null || fail "rustup could not add it"
}

# ---- debian ----------------------------------------------------------------------------------------------------
APT=()                                      # apt's options: none for the system's lists, else for our own

own_lists() {                               # needs no root and leaves the system's alone
  local dir=$CACHE/apt file
  rm -rf "$dir"
  mkdir -p "$dir"/{lists/partial,cache/archives/partial,parts}
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do   # Debian's own; others may not be reachable
    [[ ! -f $file ]] || ! grep -Eq '^[^#]*(debian-security|/debian)([ /]|$)' "$file" || cp "$file" "$dir/parts/"
  done
  compgen -G "$dir/parts/*" >/dev/null || return 1
  APT=(-o Dir::State::lists="$dir/lists" -o Dir::Cache="$dir/cache" -o Dir::Etc::sourcelist=/dev/null
    -o Dir::Etc::sourceparts="$dir/parts" -o Acquire::Languages=none -o Acquire::Retries=3
    -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 -o Debug::NoLocking=true)
  [[ $EUID != 0 ]] || APT+=(-o APT::Sandbox::User=root)
  apt-get "${APT[@]}" -qq update
}

field() { apt-cache ${APT[@]+"${APT[@]}"} show --no-all-versions "$1" 2>/dev/null | sed -n "s/^$2: //p" | sed -n 1p; }
needs() { field "$1" Depends | tr ',|' '\n\n' | sed 's/^ *//; s/[ (:].*//; /^$/d'; }
absent() { [[ $(dpkg-query -W -f '${Status}' "$1" 2>/dev/null) != 'install ok installed' ]]; }

packages() {                                # found by what they need: names carry versions (libllvm22)
  local version std llvm package inner
  version=$(field rustc-web Version)
  [[ -n $version ]] && dpkg --compare-versions "$version" ge $OLDEST || return 1
  [[ $(field rust-web-src Version) == "$version" ]] || return 1
  std=$(needs libstd-rust-web-dev | grep -m1 '^libstd-rust-web-[0-9]') || return 1
  llvm=$(needs "$std" | grep -m1 '^libllvm[0-9]') || return 1
  echo "rust-web-src rustc-web libstd-rust-web-dev $std $llvm lld-${llvm#libllvm} wasi-libc"
  for package in $(needs "$llvm"); do       # what libLLVM itself loads, where the machine lacks it
    absent "$package" || continue
    echo "$package"
    for inner in $(needs "$package"); do ! absent "$inner" || echo "$inner"; done
  done
}

fetch() {                                   # prints PACKAGE FILE; named by content, so that no half of one is used
  local package names sum
  names=$(packages) && [[ -n $names ]] || return 1
  mkdir -p "$CACHE/debs" && cd "$CACHE/debs" || return 1
  for package in $names; do
    sum=$(field "$package" SHA256)
    [[ -n $sum ]] || return 1
    if ! echo "$sum  $sum.deb" | sha256sum -c --status - 2>/dev/null; then
      rm -rf get "$sum.deb"
      mkdir get
      (cd get && apt-get ${APT[@]+"${APT[@]}"} -qq download "$package" >&2) || return 1
      mv get/*.deb "$sum.deb"
      echo "$sum  $sum.deb" | sha256sum -c --status - || return 1
    fi
    echo "$package $CACHE/debs/$sum.deb"
  done
}

unpack() {                                  # of the sources, 60 of 340 MB
  case $1 in
    rust-web-src) dpkg-deb --fsys-tarfile "$2" | tar -x -C "$WORK/root" --wildcards './usr/src/rustc-*/library/*' './usr/src/rustc-*/Cargo.*' ;;
    *) dpkg-deb --fsys-tarfile "$2" | tar -x -C "$WORK/root" --exclude ./usr/share --exclude ./usr/libexec --exclude ./usr/bin/rustdoc --exclude ./usr/include ;;
  esac
}

lay_out() {                                 # from unpacked packages to a sysroot
  local usr=$WORK/root/usr tool=$1
  mkdir -p "$NEW/bin" "$NEW/lib/rustlib/$HOST/bin" "$NEW/lib/rustlib/src" "$NEW/lib/rustlib/$TARGET/lib/self-contained"
  find "$WORK/root" -name '*.so*' -not -path '*/rustlib/*' -exec mv -t "$NEW/lib" {} +
  mv "$usr/lib/rustlib/$HOST/lib" "$NEW/lib/rustlib/$HOST/lib"
  mv "$usr/bin/rustc" "$NEW/bin/rustc.bin"
  mv "$usr"/src/rustc-* "$NEW/lib/rustlib/src/rust"
  cp -L "$tool" "$NEW/lib/rustlib/$HOST/bin/"
  cp -L "$usr"/lib/llvm-*/bin/lld "$NEW/lib/rustlib/$HOST/bin/rust-lld"   # rustup's needs rustup's libLLVM
  cp "$usr"/lib/wasm32-wasi/{crt1-command.o,crt1-reactor.o,libc.a} "$NEW/lib/rustlib/$TARGET/lib/self-contained/"
  cat >"$NEW/bin/rustc" <<'SH'
#!/bin/sh
# The library path is for rustc alone: whatever it starts keeps its own.
dir=$(cd "${0%/*}/.." && pwd)
LD_LIBRARY_PATH=$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$dir/bin/rustc.bin" --sysroot "$dir" "$@"
SH
  chmod +x "$NEW/bin/rustc"
}

build_std() {                               # by cargo, on an empty crate; its rlibs become the sysroot's
  local crate=$WORK/std vendor=$NEW/lib/rustlib/src/rust/library/vendor bindgen
  mkdir -p "$crate/.cargo"
  # std's own dependencies are in Debian's sources: no registry is asked
  printf '[source.crates-io]\nreplace-with = "debian"\n[source.debian]\ndirectory = "%s"\n' "$vendor" >"$crate/.cargo/config.toml"
  # less this archive, which was dropped as a binary: a weak cabi_realloc, and std has one of its own
  for bindgen in "$vendor"/wit-bindgen-*/src/rt; do
    [[ ! -d $bindgen || -e $bindgen/libwit_bindgen_cabi.a ]] || printf '!<arch>\n' >"$bindgen/libwit_bindgen_cabi.a"
  done
  echo '#![no_std]' >"$crate/lib.rs"
  printf '%s\n' '[package]' 'name = "empty"' 'edition = "2024"' '[lib]' 'path = "lib.rs"' '[workspace]' >"$crate/Cargo.toml"
  (
    cd "$crate"
    unset CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET CARGO_BUILD_RUSTFLAGS RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER
    # bitcode: guests with `lto = true` need it, and cargo leaves it out when the building profile has no LTO
    RUSTC=$NEW/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$crate/target CARGO_INCREMENTAL=0 \
      RUSTFLAGS="-Cembed-bitcode=yes --remap-path-prefix=$NEW/lib/rustlib/src/rust=/rustc/debian" \
      cargo build --offline -q --release --target $TARGET -Zbuild-std=std,panic_abort
  ) >&2 </dev/null || return 1
  find "$crate/target/$TARGET/release/deps" -name 'lib*.rlib' ! -name 'libempty-*' -exec cp -t "$NEW/lib/rustlib/$TARGET/lib" {} +
}

add_stubs() {                               # what std mentions and Debian's wasi-libc of 2022 has not
  local out=$WORK/wasi-libc-stubs.o
  RUSTC_BOOTSTRAP=1 "$NEW/bin/rustc" --edition 2024 --crate-type lib --emit obj -Copt-level=s --target $TARGET \
    "${BASH_SOURCE[0]%/*}/wasi-libc-stubs.rs" -o "$out" >&2 &&
    ar r "$NEW/lib/rustlib/$TARGET/lib/self-contained/libc.a" "$out" >&2
}

make_from_debian() {
  local tool program package file started=$SECONDS
  WORK=$CACHE/work NEW=$CACHE/work/new
  [[ $(uname -sm) == 'Linux x86_64' ]] || fail "Debian's packages are of use on Linux x86_64 only" || return 1
  for program in apt-get apt-cache dpkg-deb cargo ar sha256sum; do
    command -v $program >/dev/null || fail "Debian's way needs $program" || return 1
  done
  tool=$(env -u RUSTC rustc --print sysroot)/lib/rustlib/$HOST/bin/wasm-component-ld
  [[ -x $tool ]] || fail "the installed Rust has no wasm-component-ld" || return 1
  rm -rf "$WORK"
  mkdir -p "$WORK/root"

  say "fetching Debian's rustc-web, about 140 MB"
  if skipped lists || ! (fetch) >"$WORK/files" 2>"$WORK/log"; then
    own_lists 2>>"$WORK/log" && (fetch) >"$WORK/files" 2>>"$WORK/log" ||
      { cat "$WORK/log" >&2; fail "Debian's packages could not be fetched"; } || return 1
  fi
  say "unpacking ($((SECONDS - started)) s)"
  while read -r package file; do unpack "$package" "$file" || return 1; done <"$WORK/files"
  lay_out "$tool"
  "$NEW/bin/rustc" -V >"$NEW/version" || fail "the unpacked rustc does not start" || return 1
  say "building std with $(<"$NEW/version"), a minute or two ($((SECONDS - started)) s)"
  build_std || fail "building std failed" || return 1
  add_stubs || fail "building the libc stubs failed" || return 1
  rm -rf "$NEW/lib/rustlib/src"
  links "$NEW/bin/rustc" || fail "the new toolchain does not link" || return 1

  rm -rf "$SYSROOT"
  mv "$NEW" "$SYSROOT"                      # only what passed its test gets this name
  rm -rf "$WORK" "$CACHE/apt" "$CACHE/debs"
  say "ready in $((SECONDS - started)) s: $SYSROOT, $(du -sm "$SYSROOT" | cut -f1) MB"
}

# ---- choosing --------------------------------------------------------------------------------------------------
RUST=                                       # empty: plain cargo will do; else what RUSTC has to be

there() {
  RUST=
  if ! skipped installed && links "${RUSTC:-rustc}"; then return 0; fi
  if ! skipped cached && [[ -x $SYSROOT/bin/rustc ]] && links "$SYSROOT/bin/rustc"; then RUST=$SYSROOT/bin/rustc; return 0; fi
  return 1
}

by_rustup() { ! skipped rustup && add_by_rustup && links "${RUSTC:-rustc}"; }
by_debian() { ! skipped debian && make_from_debian 9>&- && RUST=$SYSROOT/bin/rustc; }

ensure() {
  ! there || return 0
  local rc=0
  mkdir -p "$CACHE"
  exec 9>"$CACHE/lock"                      # one at a time; the next one finds the work done
  if command -v flock >/dev/null && ! flock -n 9; then say "waiting for another run"; flock 9; fi
  there || by_rustup || by_debian || rc=1
  exec 9>&-
  [[ $rc == 0 ]] || fail "no way to compile for $TARGET here; where there is a network: rustup target add $TARGET"
}

case ${1:-} in
  rustc) ensure || exit 1; [[ -z $RUST ]] || printf '%s\n' "$RUST" ;;
  run) shift; ensure || exit 1; [[ -z $RUST ]] || export RUSTC=$RUST; exec "$@" ;;
  status) if there; then say "${RUST:-the installed Rust has $TARGET}"; else fail "$TARGET is not there yet"; fi ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"; exit 2 ;;
esac
