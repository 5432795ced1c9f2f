//! A directory and those that could take it away from its user: other users, on the way to it.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, lchown, symlink};
use std::path::Path;

use crate::support::sandbox::{Run, Sandbox};

/// Another user.
const OTHER: u32 = 7;

/// A way to a directory.
struct Way {
    /// Makes what is to be there, in this folder.
    make: fn(&Path),
    /// The directory, in that folder.
    base: &'static str,
    /// The refusal, with the part of the way that it names; blank if all is well.
    refused: &'static str,
    /// Only root can make it.
    of_root: bool,
}

const WAYS: [Way; 10] = [
    Way {
        make: |at| give(folder(at, "a", 0o755)),
        base: "a/b",
        refused: "/a belongs",
        of_root: true,
    },
    Way {
        make: |at| {
            folder(at, "a", 0o755);
            folder(at, "a/b", 0o700);
            give(at.join("a"));
        },
        base: "a/b/c",
        refused: "/a belongs",
        of_root: true,
    },
    Way {
        make: |at| drop(folder(at, "a", 0o777)),
        base: "a/b",
        refused: "/a is writable by others (mode 0777)",
        of_root: false,
    },
    Way {
        make: |at| drop(folder(at, "a", 0o720)),
        base: "a/b",
        refused: "/a is writable by others (mode 0720)",
        of_root: false,
    },
    // A link of the other user, where all can make one.
    Way {
        make: |at| {
            folder(at, "a", 0o1777);
            give(link(at, "a/to", "b"));
            folder(at, "b", 0o700);
        },
        base: "a/to",
        refused: "/a/to belongs",
        of_root: true,
    },
    // A link of this user to a link in a folder of the other user, which leads back.
    Way {
        make: |at| {
            folder(at, "theirs", 0o755);
            link(at, "theirs/back", "own");
            folder(at, "own", 0o700);
            link(at, "to", "theirs/back");
            give(at.join("theirs"));
        },
        base: "to/b",
        refused: "/theirs belongs",
        of_root: true,
    },
    Way {
        make: |at| drop(symlink("to", at.join("to"))),
        base: "to/b",
        refused: "/to: Too many levels of symbolic links",
        of_root: false,
    },
    Way { make: |at| drop(folder(at, "a", 0o1777)), base: "a/b", refused: "", of_root: false },
    Way {
        make: |at| {
            folder(at, "a", 0o755);
            folder(at, "own", 0o755);
            symlink("../own/./.", at.join("a/to")).expect("it is free");
        },
        base: "a/to/../own/b",
        refused: "",
        of_root: false,
    },
    Way { make: |_| (), base: "a", refused: "", of_root: false },
];

fn folder(at: &Path, name: &str, mode: u32) -> std::path::PathBuf {
    let path = at.join(name);
    DirBuilder::new().mode(0o700).create(&path).expect("it is free");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is this user's");
    path
}

fn link(at: &Path, name: &str, to: &str) -> std::path::PathBuf {
    symlink(at.join(to), at.join(name)).expect("it is free");
    at.join(name)
}

fn give(path: impl AsRef<Path>) {
    lchown(path, Some(OTHER), None).expect("root may");
}

/// The owner of a directory on the way could move the held lock away, and have the next requester
/// make another: both would be granted.
#[test]
fn a_directory_is_refused_if_others_can_replace_a_part_of_the_way_to_it() {
    for Way { make, base, refused, of_root } in WAYS {
        if of_root && !rustix::process::geteuid().is_root() {
            println!("skipped: only root can give files away");
            continue;
        }
        let sandbox = Sandbox::new("way");
        make(&sandbox);
        let before = fs::read_dir(&**sandbox).expect("it is there").count();
        let base = sandbox.join(base);
        let run = |options: &[&str]| -> Run {
            let mut putex = sandbox.putex();
            putex.arg(options[0]).arg("--dir").arg(&base).args(&options[1..]);
            sandbox.run(&mut putex)
        };
        let locked = run(&["lock", "x", "true"]);
        let grabbed = run(&["grab", "--as", "me", "y"]);
        if refused.is_empty() {
            assert_eq!((locked.status, grabbed.status), (Some(0), Some(0)), "{}", locked.said);
            continue;
        }
        for Run { status, said, .. } in [locked, grabbed] {
            assert_eq!(status, Some(78), "{refused}: {said}");
            assert!(said.contains(refused) && said.lines().count() == 1, "{refused}: {said}");
            let is_loop = refused.contains("levels");
            assert!(is_loop || said.contains("use another directory"), "{refused}: {said}");
        }
        // Nothing was made, but for the folders of the sandbox.
        let own = ["run", "tmp"].iter().filter(|it| sandbox.join(it).exists()).count();
        assert_eq!(
            fs::read_dir(&**sandbox).expect("it is there").count(),
            before + own,
            "{refused}"
        );
    }
}
