#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    putex::fuzz::locks(data);
});
