//! `cargo xtask wasm [--release]`: compiles `bindings/wasm` and generates its JavaScript; and compiles `bindings/sandbox`, which the host
//! drives by hand. `--release` makes what is published: it takes minutes more, and ends with binaryen's `wasm-opt`.
//!
//! The result lies in `wasm/`: `fulmar_wasm.js`, `fulmar_wasm.d.ts`, `fulmar_wasm_bg.wasm`, `fulmar_sandbox.wasm`.
//! `FULMAR_WASM_RUSTC` may name a compiler that has a standard library for the target, see `scripts/wasm-toolchain.sh`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use wasm_bindgen_cli_support::Bindgen;

const TARGET: &str = "wasm32-unknown-unknown";

/// The sandbox's file in `wasm/`.
const SANDBOX: &str = "fulmar_sandbox.wasm";

/// What rustc may emit for this target, which `wasm-opt` must be told.
const FEATURES: [&str; 7] = [
    "--enable-simd",
    "--enable-bulk-memory",
    "--enable-nontrapping-float-to-int",
    "--enable-sign-ext",
    "--enable-mutable-globals",
    "--enable-reference-types",
    "--enable-multivalue",
];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_release = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--release"] => true,
        _ => return Err(format!("the only option is --release: got {arguments:?}").into()),
    };
    let profile = if is_release { "wasm" } else { "wasm-dev" };
    let modules = [compile(&root, profile, "fulmar-wasm")?, compile(&root, profile, "fulmar-sandbox")?];
    let place = root.join("wasm");
    let sources =
        ["generated-from.wasm", "sandbox-from.wasm"].map(|name| root.join("target/wasm").join(name));
    let is_current = |at: usize| is_generated_from(&sources[at], &modules[at]);
    if place.join(SANDBOX).exists() && is_current(0)? && is_current(1)? {
        return Ok(());
    }
    // Made beside its place and moved there whole, so that nobody loads half of it.
    let staged = root.join("target/wasm-staged");
    if staged.exists() {
        std::fs::remove_dir_all(&staged)?;
    }
    generate(&modules[0], &staged)?;
    std::fs::copy(&modules[1], staged.join(SANDBOX))?;
    if is_release {
        shrink(&root, &["fulmar_wasm_bg.wasm", SANDBOX].map(|name| staged.join(name)))?;
    }
    if place.exists() {
        std::fs::remove_dir_all(&place)?;
    }
    std::fs::rename(&staged, &place)?;
    for (source, module) in sources.iter().zip(&modules) {
        std::fs::copy(module, source)?;
    }
    Ok(())
}

/// Whether `source`, the module of the last run, is `module`, and this program was not compiled anew since.
fn is_generated_from(source: &Path, module: &Path) -> Outcome<bool> {
    let program = std::env::current_exe()?.metadata()?.modified()?;
    let is_newer = source.metadata().and_then(|data| data.modified()).is_ok_and(|time| time > program);
    Ok(is_newer && std::fs::read(source)? == std::fs::read(module)?)
}

/// The module of a package as rustc makes it, with the flags of `.cargo/config.toml`.
fn compile(root: &Path, profile: &str, package: &str) -> Outcome<PathBuf> {
    let target_dir = root.join("target/wasm");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args(["build", "--package", package, "--profile", profile, "--target", TARGET]);
    cargo.arg("--target-dir").arg(&target_dir);
    // These would take the place of the flags of `.cargo/config.toml`.
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("RUSTFLAGS");
    if let Some(rustc) = std::env::var_os("FULMAR_WASM_RUSTC") {
        cargo.env("RUSTC", rustc);
    }
    run(&mut cargo)?;
    Ok(target_dir.join(TARGET).join(profile).join(package.replace('-', "_")).with_extension("wasm"))
}

fn generate(module: &Path, place: &Path) -> Outcome<()> {
    let mut bindgen = Bindgen::new();
    bindgen.input_path(module).out_name("fulmar_wasm").typescript(true).web(true)?;
    bindgen.keep_debug(false).remove_name_section(true).remove_producers_section(true);
    Ok(bindgen.generate(place)?)
}

/// Makes modules a third smaller, all at once. After all that rustc did, the levels 2 and 3 of `wasm-opt` make nothing
/// faster and the files another 1 and 4 % smaller, and take two and four times as long.
fn shrink(root: &Path, modules: &[PathBuf]) -> Outcome<()> {
    let optimizer = |module: &PathBuf| {
        let mut command = Command::new("node");
        command.arg(root.join("node_modules/binaryen/bin/wasm-opt"));
        command.args(["-O1", "--strip-debug"]).args(FEATURES).arg(module).arg("-o").arg(module);
        command
    };
    let mut commands: Vec<Command> = modules.iter().map(optimizer).collect();
    let running: Vec<_> = commands.iter_mut().map(Command::spawn).collect();
    for (command, child) in commands.iter().zip(running) {
        checked(command, child.and_then(|mut child| child.wait()))?;
    }
    Ok(())
}

fn run(command: &mut Command) -> Outcome<()> {
    let status = command.status();
    checked(command, status)
}

fn checked(command: &Command, status: std::io::Result<ExitStatus>) -> Outcome<()> {
    let status = status.map_err(|error| format!("{command:?} must start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} must succeed: got {status}").into()) }
}
