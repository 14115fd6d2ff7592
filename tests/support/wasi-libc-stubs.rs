//! Functions that std for wasm32-wasip2 calls and Debian's wasi-libc (2022) lacks: sockets, threads, chmod,
//! realpath.
//!
//! A connector is granted none of them. With these a guest that mentions one links, and gets "not supported" when it
//! tries. Compiled by `wasm-target.sh` alone, into the private toolchain's libc; no part of any crate.
#![no_std]
#![feature(thread_local)]

use core::ffi::{c_char, c_int, c_void};

type Pointer = *mut c_void;

unsafe extern "C" {
    #[thread_local]
    static mut errno: c_int;
}

const ENOTSUP: c_int = 58;
const EAI_FAIL: c_int = -4;

fn no() -> c_int {
    // SAFETY: wasi-libc's own variable, and there is one thread.
    unsafe { errno = ENOTSUP };
    -1
}

macro_rules! stubs {
    ($($name:ident($($argument:ty),*) -> $result:ty = $value:expr;)*) => {
        $(#[unsafe(no_mangle)] pub extern "C" fn $name($(_: $argument),*) -> $result { $value })*
    };
}

stubs! {
    socket(c_int, c_int, c_int) -> c_int = no();
    bind(c_int, Pointer, u32) -> c_int = no();
    connect(c_int, Pointer, u32) -> c_int = no();
    listen(c_int, c_int) -> c_int = no();
    getsockname(c_int, Pointer, Pointer) -> c_int = no();
    getpeername(c_int, Pointer, Pointer) -> c_int = no();
    setsockopt(c_int, c_int, c_int, Pointer, u32) -> c_int = no();
    recvfrom(c_int, Pointer, usize, c_int, Pointer, Pointer) -> isize = no() as isize;
    sendto(c_int, Pointer, usize, c_int, Pointer, u32) -> isize = no() as isize;
    getaddrinfo(Pointer, Pointer, Pointer, Pointer) -> c_int = EAI_FAIL;
    freeaddrinfo(Pointer) -> () = ();
    gai_strerror(c_int) -> *const c_char = c"not supported".as_ptr();
    chmod(Pointer, u32) -> c_int = no();
    fchmod(c_int, u32) -> c_int = no();
    realpath(Pointer, Pointer) -> Pointer = { no(); core::ptr::null_mut() };
    pthread_attr_init(Pointer) -> c_int = 0;
    pthread_attr_destroy(Pointer) -> c_int = 0;
    pthread_attr_setstacksize(Pointer, usize) -> c_int = 0;
    pthread_create(Pointer, Pointer, Pointer, Pointer) -> c_int = ENOTSUP;
    pthread_detach(Pointer) -> c_int = 0;
    pthread_join(Pointer, Pointer) -> c_int = ENOTSUP;
}
