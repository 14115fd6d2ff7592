//! An attacker's changes to a valid component: flipped bits, truncation, moved sections, wrong lengths.

use super::random::Random;

/// The sections of a module or component after its header: id and content. None where the lengths lie.
pub(super) fn sections(bytes: &[u8]) -> Option<Vec<(u8, Vec<u8>)>> {
    let mut rest = bytes.get(8..)?;
    let mut sections = Vec::new();
    while let [id, after @ ..] = rest {
        let (length, used) = leb(after)?;
        let content = after.get(used..used.checked_add(length)?)?;
        sections.push((*id, content.to_vec()));
        rest = after.get(used + length..)?;
    }
    Some(sections)
}

/// The other way round: a component of these sections.
pub(super) fn component(sections: &[(u8, Vec<u8>)]) -> Vec<u8> {
    joined(b"\0asm\x0d\0\x01\0", sections)
}

fn joined(header: &[u8], sections: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = header.to_vec();
    for (id, content) in sections {
        bytes.push(*id);
        bytes.extend(to_leb(content.len()));
        bytes.extend(content);
    }
    bytes
}

fn leb(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0_usize;
    for (at, byte) in bytes.iter().take(5).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

fn to_leb(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
    bytes
}

/// One change to `bytes`, sometimes two or three.
pub(super) fn mutated(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..*random.one(&[1, 1, 1, 2, 3]) {
        bytes = if random.below(6) == 0 { in_bytes(bytes, random) } else { in_sections(bytes, random, 0) };
    }
    bytes
}

/// A change that knows nothing of the format.
fn in_bytes(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let (at, length) = (random.below(bytes.len()), bytes.len());
    if length == 0 {
        return random.bytes(16);
    }
    match random.below(12) {
        5.. => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = *random.one(&[0x00, 0x7f, 0x80, 0xff, 0x40, 0x70]),
        2 => bytes.truncate(at),
        3 => {
            // The largest numbers there are, and the longest spellings of small ones.
            let leb = *random.one(&[
                &b"\xff\xff\xff\xff\x0f"[..],
                b"\xff\xff\xff\xff\x07",
                b"\x80\x80\x80\x80\x00",
                b"\x81\x80\x80\x80\x00",
                b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
            ]);
            bytes.splice(at..at + 1, leb.iter().copied());
        }
        4 => {
            let from = random.below(length);
            let piece = bytes[from..length.min(from + 1 + random.below(64))].to_vec();
            bytes.splice(at..at, piece);
        }
        0 => {
            let count = 1 + random.below(8);
            let junk = random.bytes(count);
            bytes.splice(at..at, junk);
        }
    }
    bytes
}

/// A section, the larger the likelier: the code is in few of them.
fn heavy(sections: &[(u8, Vec<u8>)], random: &mut Random) -> usize {
    let mut left = random.below(sections.iter().map(|(_, content)| content.len() + 1).sum());
    let found = sections.iter().position(|(_, content)| {
        let here = left <= content.len();
        left = left.saturating_sub(content.len() + 1);
        here
    });
    found.unwrap_or(0)
}

/// A change of whole sections, or inside one whose length is corrected afterwards; nested ones too.
fn in_sections(bytes: Vec<u8>, random: &mut Random, depth: usize) -> Vec<u8> {
    let Some(mut sections) = sections(&bytes).filter(|sections| !sections.is_empty()) else {
        return in_bytes(bytes, random);
    };
    let (one, other) = (heavy(&sections, random), random.below(sections.len()));
    match random.below(20) {
        0 => sections.swap(one, other),
        1 => drop(sections.remove(one)),
        2 => {
            let copy = sections[one].clone();
            sections.insert(other, copy);
        }
        3 => sections[one].0 = u8::try_from(random.below(16)).unwrap(),
        _ => {
            let (id, content) = &mut sections[one];
            // Core modules (1) and components (4) are nested files.
            let nested = depth < 4 && matches!(id, 1 | 4) && content.starts_with(b"\0asm");
            let old = std::mem::take(content);
            *content = if nested { in_sections(old, random, depth + 1) } else { in_bytes(old, random) };
        }
    }
    joined(&bytes[..8], &sections)
}
