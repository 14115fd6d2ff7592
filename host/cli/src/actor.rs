//! The actor of the command line's calls, the user of the process.

use std::fs;

/// `cli:` and the name of the process's user, as the machine has it, or the user id if there is no name.
pub(super) fn actor() -> String {
    let uid = rustix::process::geteuid().as_raw();
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    match name_of(&known, uid) {
        Some(name) => format!("cli:{name}"),
        None => format!("cli:{uid}"),
    }
}

fn name_of(known: &str, uid: u32) -> Option<&str> {
    known.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(uid) && !name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn the_user_name_is_looked_up_by_id() {
        let known = "root:x:0:0:root:/root:/bin/sh\n\nodd\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!([0, 1000, 1].map(|uid| name_of(known, uid)), [Some("root"), Some("ada"), None]);
    }
}
