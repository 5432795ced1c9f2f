//! Packs the text of the manual, the largest thing in the program that is not code:
//! the pair of bytes that stands most often becomes one byte, 128 times over. The text
//! is ASCII, so those bytes are free. `src/cli/topics.rs` undoes it.

use std::path::Path;
use std::{env, fs, io};

/// Where the text is.
const FOLDER: &str = "man/text";

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed={FOLDER}");
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    for entry in fs::read_dir(FOLDER)? {
        let path = entry?.path();
        let text = fs::read(&path)?;
        assert!(text.is_ascii(), "{}: is not ASCII", path.display());
        let name = path.file_name().unwrap_or_default();
        fs::write(Path::new(&out).join(name), pack(text))?;
    }
    Ok(())
}

/// Returns the pairs, in the order of the bytes that stand for them, and the text.
fn pack(mut text: Vec<u8>) -> Vec<u8> {
    let mut pairs = Vec::new();
    for byte in 128..=255 {
        let pair = most_frequent(&text);
        pairs.extend(pair);
        text = with(byte, pair, &text);
    }
    pairs.extend(text);
    pairs
}

/// Of several that are as frequent it is the last, so that a build can be repeated.
fn most_frequent(text: &[u8]) -> [u8; 2] {
    let mut counts = vec![0_u32; 1 << 16];
    for pair in text.windows(2) {
        counts[usize::from(u16::from_be_bytes([pair[0], pair[1]]))] += 1;
    }
    let most = (0..=u16::MAX).max_by_key(|pair| counts[usize::from(*pair)]);
    most.unwrap_or_default().to_be_bytes()
}

fn with(byte: u8, pair: [u8; 2], text: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, others)) = rest.split_first() {
        let found = rest.starts_with(&pair);
        packed.push(if found { byte } else { *first });
        rest = if found { &rest[2..] } else { others };
    }
    packed
}
