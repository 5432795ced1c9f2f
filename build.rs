//! Compresses the text of the manual, the largest thing in the program that is not code.
//! `src/cli/topics.rs` reads it.

use std::path::Path;
use std::{env, fs, io};

/// Where the text is.
const FOLDER: &str = "man/text";

/// Best compression, however long it takes.
const LEVEL: u8 = 10;

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed={FOLDER}");
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    // In the order of their names, so that a build can be repeated.
    let mut paths = Vec::new();
    for entry in fs::read_dir(FOLDER)? {
        paths.push(entry?.path());
    }
    paths.sort();
    // One text, since a page has much in common with the next. Before each page stand a zero byte
    // and a line with its name.
    let mut manual = String::new();
    for path in paths {
        let text = fs::read_to_string(&path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        assert!(text.is_ascii() && !text.contains('\0'), "{name}: is not plain ASCII");
        manual += &format!("\0{name}\n{text}");
    }
    let deflated = miniz_oxide::deflate::compress_to_vec(manual.as_bytes(), LEVEL);
    fs::write(Path::new(&out).join("manual"), deflated)
}
