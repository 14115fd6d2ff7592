//! The directory of actions as hands, other users and other programs may leave it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use cofferdam::{Host, HostErrorKind};
use cofferdam_test_support::{Home, Signer, package};

use super::checks::requires;
use crate::COFFERDAM;
use crate::shared_host::run;

/// A home with the connector `hello` in it.
pub(super) struct Stage {
    pub(super) home: Home,
    pub(super) package: Vec<u8>,
}

pub(super) fn stage() -> Stage {
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let package = package::guest_package("hello", &[]);
    run(home.install(&package, &signer)).unwrap();
    Stage { home, package }
}

impl Stage {
    /// An action of one step.
    pub(super) fn greet(&self, name: &str) -> String {
        let requires = requires("hello", &self.package, "capabilities = { operations = [\"greet\"] }");
        format!(
            "+++\nname = \"{name}\"\nversion = \"1.0.0\"\n\n{requires}[[inputs]]\nname = \"who\"\ntype = \"string\"\ndescription = \"Whom to greet.\"\n\n[[execute]]\nid = \"greet\"\nconnector = \"github://cofferdam/hello\"\nop = \"greet\"\ninputs = {{ name = \"${{args.who}}\" }}\n+++\nGreets somebody.\n"
        )
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.home.path().join("actions").join(format!("{name}.md"))
    }

    fn add(&self, host: &Host, name: &str) {
        run(host.add_action("x.md", self.greet(name).as_bytes(), false)).unwrap();
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn a_stored_action_is_private_and_complete() {
    let stage = stage();
    let host = stage.home.host();
    assert!(host.actions().unwrap().is_empty());
    assert_eq!(host.action("greet").unwrap_err().kind(), HostErrorKind::ActionNotFound);
    stage.add(&host, "greet");
    let path = stage.file("greet");
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(fs::read_to_string(&path).unwrap(), stage.greet("greet"));
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");

    let again = run(host.add_action("x.md", stage.greet("greet").as_bytes(), false)).unwrap_err();
    assert_eq!(again.kind(), HostErrorKind::Conflict);
    let newer = stage.greet("greet").replace("1.0.0", "1.1.0");
    run(host.add_action("x.md", newer.as_bytes(), true)).unwrap();
    assert_eq!(host.action("greet").unwrap().version().to_string(), "1.1.0");
    // An invalid file changes nothing.
    let wrong = newer.replace("1.1.0", "1.2.0").replace("inputs = { name", "inputs = { nmae");
    let error = run(host.add_action("x.md", wrong.as_bytes(), true)).unwrap_err();
    assert!(error.message().contains("x.md:20:"), "{error}");
    assert_eq!(host.action("greet").unwrap().version().to_string(), "1.1.0");

    host.remove_action("greet").unwrap();
    assert_eq!(host.remove_action("greet").unwrap_err().kind(), HostErrorKind::ActionNotFound);
}

#[test]
fn a_file_must_have_its_actions_name() {
    let stage = stage();
    let host = stage.home.host();
    stage.add(&host, "greet");
    fs::copy(stage.file("greet"), stage.file("other")).unwrap();
    let error = host.action("other").unwrap_err();
    assert!(error.message().starts_with("other.md:2:8: name: the file is called other.md"), "{error}");
    for name in ["../greet", "Greet", "", "greet.md/..", "a\u{202e}b", "/etc/passwd", ".greet"] {
        let error = host.action(name).unwrap_err();
        assert_eq!(error.kind(), HostErrorKind::ActionNotFound, "{name}");
        assert!(!error.message().contains('\u{202e}'));
        assert_eq!(host.remove_action(name).unwrap_err().kind(), HostErrorKind::ActionNotFound, "{name}");
    }
    assert_eq!(
        host.action("gret").unwrap_err().hint().unwrap().split('?').next(),
        Some("Did you mean greet")
    );
}

#[test]
fn files_writable_by_others_are_not_read() {
    let stage = stage();
    let host = stage.home.host();
    stage.add(&host, "greet");
    let (path, dir) = (stage.file("greet"), stage.home.path().join("actions"));
    let refused = |name: &str, what: &str| {
        let error = host.action(name).unwrap_err();
        assert!(error.kind() == HostErrorKind::Validation && error.message().contains(what), "{error}");
        assert!(!error.message().contains(stage.home.path().to_str().unwrap()), "{error}");
    };
    for open in [0o620, 0o602, 0o666] {
        fs::set_permissions(&path, Permissions::from_mode(open)).unwrap();
        refused("greet", "can be written by others");
    }
    // An editor may have made it readable, which does no harm.
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    host.action("greet").unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
    refused("greet", "another user can change");
    assert!(host.actions().is_err() && host.remove_action("greet").is_err());
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    symlink("greet.md", dir.join("link.md")).unwrap();
    refused("link", "is a symbolic link");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("pipe.md"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    refused("pipe", "is not a regular file");
    fs::create_dir(dir.join("dir.md")).unwrap();
    refused("dir", "is not a regular file");
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket.md")).unwrap();
    refused("socket", "is not a regular file");
    fs::write(dir.join("large.md"), vec![b'x'; 2 << 20]).unwrap();
    refused("large", "more than 1 MiB");
    fs::write(dir.join("Upper.md"), "").unwrap();
    fs::write(dir.join("greet.md~"), "a copy of an editor's").unwrap();
    fs::write(dir.join(".action-abc"), "left by a crash").unwrap();
    let listed = host.actions().unwrap();
    let listed: Vec<_> = listed.iter().map(|it| (it.name.as_str(), it.action.is_ok())).collect();
    assert_eq!(
        listed,
        [
            ("Upper", false),
            ("dir", false),
            ("greet", true),
            ("large", false),
            ("link", false),
            ("pipe", false),
            ("socket", false)
        ]
    );
    // A link is removed itself, and never what it points to.
    host.remove_action("link").unwrap();
    assert!(path.exists());
}

#[test]
fn a_check_covers_the_bytes_that_were_read() {
    let stage = stage();
    let host = stage.home.host();
    stage.add(&host, "greet");
    let action = host.action("greet").unwrap();
    let before = *action.hash();
    fs::write(stage.file("greet"), stage.greet("greet").replace("1.0.0", "9.9.9")).unwrap();
    let runnable = run(host.check_action(action)).unwrap();
    assert_eq!((*runnable.action().hash(), runnable.action().version().major), (before, 1));
    assert_ne!(*host.action("greet").unwrap().hash(), before);
}
