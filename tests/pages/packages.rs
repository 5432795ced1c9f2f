//! The packages of `contrib`, as far as nothing has to be installed or built for it; all of
//! it is in `tests/system/packages/run`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Plays one part of `tests/system/packages/run`, with what is there.
fn play(part: &str) {
    let output = Command::new(root().join("tests/system/packages/run"))
        .arg(part)
        // Nothing is run here: a small program stands for putex.
        .env("PUTEX_STATIC", "/bin/true")
        .env("PUTEX_INSTALL", "0")
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
    // The output names the checks that could not be made here.
    println!("{said}");
}

#[test]
fn all_is_installed_from_one_list() {
    play("layout");
}

#[test]
fn alpine_lays_out_the_same() {
    play("alpine");
}

#[test]
fn buildroot_lays_out_the_same() {
    play("buildroot");
}

#[test]
fn yocto_lays_out_the_same_and_has_the_crates_of_the_lock() {
    play("yocto");
}

#[test]
fn images_copy_what_is_there() {
    play("docker");
}

#[test]
fn packages_have_the_version_of_the_crate() {
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        ("contrib/debian/changelog", format!("putex ({version}) ")),
        ("contrib/alpine/APKBUILD", format!("\npkgver={version}\n")),
        ("contrib/buildroot/package/putex/putex.mk", format!("\nPUTEX_VERSION = {version}\n")),
        ("contrib/docker/Dockerfile", format!("putex:{version} ")),
        ("contrib/docker/service/Dockerfile", format!("\nFROM putex:{version} ")),
    ] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        assert!(text.contains(&line), "{file} does not have {line:?}");
    }
    let recipe = format!("contrib/yocto/recipes-putex/putex/putex_{version}.bb");
    assert!(root().join(&recipe).exists(), "{recipe}");
}

#[test]
fn whose_licence_asks_for_it_is_named_in_the_package() {
    let tree = Command::new(env!("CARGO"))
        .args("tree --locked --edges normal,no-proc-macro".split(' '))
        .args("--prefix none --format {p}|{l}".split(' '))
        .args("--target x86_64-unknown-linux-musl".split(' '))
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let complained = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{complained}");
    let named = fs::read_to_string(root().join("contrib/debian/copyright")).unwrap();
    let mut seen = 0;
    for line in String::from_utf8_lossy(&tree.stdout).lines() {
        let (name, licence) = line.split_once('|').expect("a licence");
        let name = name.split(' ').next().unwrap();
        // Of a choice, the licence of putex itself is taken. Older manifests have a slash for OR.
        let licence = licence.trim_end_matches(" (*)").replace('/', " OR ");
        let mut choices = licence.split(" OR ");
        if !choices.any(|choice| choice == "Apache-2.0") {
            let wanted = format!(" crates/{name}/*");
            assert!(named.contains(&wanted), "{name}, {licence}, is not named");
            seen += 1;
        }
    }
    assert!(seen >= 6, "only {seen} found");
}

#[test]
fn scripts_of_the_debian_package_are_those_that_dpkg_runs() {
    for script in ["postinst", "prerm", "postrm"] {
        let path = root().join("contrib/debian").join(script);
        let checked = Command::new("sh").arg("-n").arg(&path).status();
        assert!(checked.expect("sh runs").success(), "{script}");
        let text = fs::read_to_string(&path).unwrap();
        // A script of a package that goes on after an error leaves half of it done.
        assert!(text.contains("\nset -e\n"), "{script}");
        // An upgrade must not move a service to another host.
        for word in ["restart", "start putex", "try-restart"] {
            let code = text.lines().filter(|line| !line.starts_with('#'));
            let found: Vec<_> = code.filter(|line| line.contains(word)).collect();
            assert!(found.is_empty(), "{script}: {found:?}");
        }
    }
}
