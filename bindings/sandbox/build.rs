//! Linker options of the sandbox: the host makes its memory, which grows from 4 MiB to at most 64 MiB.

const ARGUMENTS: [&str; 4] =
    ["--import-memory", "--initial-memory=4194304", "--max-memory=67108864", "-zstack-size=1048576"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_FAMILY").as_deref() == Ok("wasm") {
        for argument in ARGUMENTS {
            println!("cargo::rustc-link-arg-cdylib={argument}");
        }
    }
}
