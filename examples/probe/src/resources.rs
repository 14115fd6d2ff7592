//! Taking more than there is: time, memory, stack.

use std::hint::black_box;

/// Never returns, and does not look as if it could be optimised away.
pub(crate) fn spin() -> ! {
    let mut turn = 0_u64;
    loop {
        turn = black_box(turn.wrapping_add(1));
    }
}

/// Takes memory a MiB at a time, writes to each page of it, and keeps it. Beyond
/// the limit, allocating traps or says no, as the allocator has it.
pub(crate) fn eat_memory() -> u64 {
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut block = Vec::new();
        if block.try_reserve_exact(1 << 20).is_err() {
            // The polite way is not this operation's: ask again, and abort.
            block = Vec::with_capacity(1 << 20);
        }
        block.resize(1 << 20, 1);
        eaten.push(black_box(block));
    }
}

/// Calls itself until the stack is full.
#[allow(unconditional_recursion, reason = "what this operation is for")]
pub(crate) fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 32]);
    recurse(depth + 1) + frame.iter().sum::<u64>()
}
