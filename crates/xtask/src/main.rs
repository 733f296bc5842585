//! Fulmar's own check and build program. `cargo xtask tidy` reads the tree and checks the house style;
//! `cargo xtask kernels` compiles the kernels of GPUs; `cargo xtask wasm` runs `xtask-wasm`, so that the check
//! does not compile a code generator.

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

mod kernels;
mod tidy;

const USAGE: &str =
    "usage: cargo xtask tidy                checks what no other tool can: floors, mirrors, defaults, tests, text
       cargo xtask kernels [--check]   compiles the kernels of NVIDIA GPUs, which the next build embeds; or into target/
       cargo xtask wasm [--release]    builds the WebAssembly module into wasm/";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::check(workspace()).map(|()| "tidy: clean\n".to_owned()),
        ["kernels"] => kernels::compile(workspace(), "crates/fulmar-cuda/compiled"),
        ["kernels", "--check"] => kernels::compile(workspace(), "target/kernels"),
        ["wasm", ref options @ ..] => return build_wasm(options),
        _ => Err(format!("{USAGE}\n")),
    };
    let (text, code) = match outcome {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(problem) => (problem, ExitCode::FAILURE),
    };
    // A closed pipe (`| head`) does not fail the check.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    code
}

fn build_wasm(options: &[&str]) -> ExitCode {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(workspace()).args(["run", "--quiet", "--package", "xtask-wasm", "--profile", "tool"]);
    cargo.arg("--").args(options);
    match cargo.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Returns the root of the workspace: two folders above this crate.
fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
