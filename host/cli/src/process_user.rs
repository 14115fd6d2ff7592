//! The user of the process: the actor of the command line's calls, and the user of its changes.

use std::fs;

/// The login user id of a process that no login began.
const NO_LOGIN: u32 = u32::MAX;

/// The user of this process, as the machine has it.
pub(super) struct ProcessUser {
    uid: u32,
    name: Option<String>,
    /// The user who logged in, if that is another one, as with `sudo`.
    login: Option<(u32, Option<String>)>,
}

impl ProcessUser {
    /// Looks up the user, in files that a confined process cannot read.
    pub(super) fn look_up() -> Self {
        let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let login = fs::read_to_string("/proc/self/loginuid").ok();
        let login = login.and_then(|text| text.trim().parse().ok());
        Self::new(&known, rustix::process::geteuid().as_raw(), login)
    }

    fn new(known: &str, uid: u32, login: Option<u32>) -> Self {
        let name = |uid| name_of(known, uid).map(ToOwned::to_owned);
        let login = login.filter(|login| ![NO_LOGIN, uid].contains(login)).map(|login| (login, name(login)));
        Self { uid, name: name(uid), login }
    }

    /// Returns the user's name, if the machine has one.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the actor of calls: `cli:` and the name, or the user id if there is no name.
    pub(super) fn actor(&self) -> String {
        match &self.name {
            Some(name) => format!("cli:{name}"),
            None => format!("cli:{}", self.uid),
        }
    }

    /// Returns the user for the changes of operators, like `uid 0 (root), logged in as uid 1000 (ada)`.
    pub(super) fn description(&self) -> String {
        let user = |uid, name: &Option<String>| match name {
            Some(name) => format!("uid {uid} ({name})"),
            None => format!("uid {uid}"),
        };
        let own = user(self.uid, &self.name);
        match &self.login {
            Some((uid, name)) => format!("{own}, logged in as {}", user(*uid, name)),
            None => own,
        }
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
    use super::{NO_LOGIN, ProcessUser, name_of};

    const KNOWN: &str = "root:x:0:0:root:/root:/bin/sh\n\nodd\nada:x:1000:1000::/home/ada:/bin/sh\n";

    #[test]
    fn the_user_name_is_looked_up_by_id() {
        assert_eq!([0, 1000, 1].map(|uid| name_of(KNOWN, uid)), [Some("root"), Some("ada"), None]);
    }

    #[test]
    fn users_are_described_with_their_login() {
        let described = |uid, login| ProcessUser::new(KNOWN, uid, login).description();
        assert_eq!(described(0, Some(1000)), "uid 0 (root), logged in as uid 1000 (ada)");
        assert_eq!(described(0, Some(NO_LOGIN)), "uid 0 (root)");
        assert_eq!(described(1000, Some(1000)), "uid 1000 (ada)");
        assert_eq!(described(7, None), "uid 7");
        assert_eq!(ProcessUser::new(KNOWN, 7, None).actor(), "cli:7");
        assert_eq!(ProcessUser::new(KNOWN, 0, Some(1000)).actor(), "cli:root");
    }
}
