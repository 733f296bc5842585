//! `cargo xtask wasm [--release]`: compiles `bindings/wasm` twice, whole and as the edge module, and
//! generates their JavaScript; and compiles `bindings/sandbox`, which the host drives by hand. `--release`
//! makes the published files: it takes minutes more, and ends with binaryen's `wasm-opt`.
//!
//! The result is in `wasm/`: `fulmar_wasm.js`, `fulmar_wasm.d.ts`, `fulmar_wasm_bg.wasm`, the same of
//! `fulmar_edge`, and `fulmar_sandbox.wasm`.
//! `FULMAR_WASM_RUSTC` may name a compiler that has a standard library for the target, see `scripts/wasm-toolchain.sh`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use wasm_bindgen_cli_support::Bindgen;

const TARGET: &str = "wasm32-unknown-unknown";

/// One module of `wasm/`.
struct Module {
    name: &'static str,
    package: &'static str,
    options: &'static [&'static str],
    /// The profiles of tests and of a release.
    profiles: [&'static str; 2],
    /// If true, JavaScript is generated for it.
    has_javascript: bool,
}

const WASM: &str = "fulmar-wasm";
const MODULES: [Module; 3] = [
    Module {
        name: "fulmar_wasm",
        package: WASM,
        options: &[],
        profiles: ["wasm-dev", "wasm"],
        has_javascript: true,
    },
    Module {
        name: "fulmar_edge",
        package: WASM,
        options: &["--no-default-features"],
        profiles: ["wasm-dev", "wasm-edge"],
        has_javascript: true,
    },
    Module {
        name: "fulmar_sandbox",
        package: "fulmar-sandbox",
        options: &[],
        profiles: ["wasm-dev", "wasm"],
        has_javascript: false,
    },
];

/// The features that rustc may emit for this target; `wasm-opt` needs the list.
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
    let place = root.join("wasm");
    let made = root.join("target/wasm");
    let mut compiled = Vec::new();
    for module in &MODULES {
        compiled.push(module.compile(&root, is_release)?);
    }
    let file =
        |module: &Module| module.name.to_owned() + if module.has_javascript { "_bg.wasm" } else { ".wasm" };
    let source = |module: &Module| made.join(module.name).with_extension("generated-from.wasm");
    let is_there = MODULES.iter().all(|module| place.join(file(module)).exists());
    let mut is_current = is_there;
    for (module, compiled) in MODULES.iter().zip(&compiled) {
        is_current = is_current && is_generated_from(&source(module), compiled)?;
    }
    if is_current {
        return Ok(());
    }
    // Made in another folder and moved as a whole, so that no process loads half of it.
    let staged = root.join("target/wasm-staged");
    if staged.exists() {
        std::fs::remove_dir_all(&staged)?;
    }
    std::fs::create_dir_all(&staged)?;
    for (module, compiled) in MODULES.iter().zip(&compiled) {
        if module.has_javascript {
            generate(compiled, module.name, &staged)?;
        } else {
            std::fs::copy(compiled, staged.join(file(module)))?;
        }
    }
    if is_release {
        shrink(&root, &MODULES.each_ref().map(|module| staged.join(file(module))))?;
    }
    if place.exists() {
        std::fs::remove_dir_all(&place)?;
    }
    std::fs::rename(&staged, &place)?;
    for (module, compiled) in MODULES.iter().zip(&compiled) {
        std::fs::copy(compiled, source(module))?;
    }
    Ok(())
}

/// Returns whether `source`, the module of the last run, equals `module`, and this program was not recompiled
/// since.
fn is_generated_from(source: &Path, module: &Path) -> Outcome<bool> {
    let program = std::env::current_exe()?.metadata()?.modified()?;
    let is_newer = source.metadata().and_then(|data| data.modified()).is_ok_and(|time| time > program);
    Ok(is_newer && std::fs::read(source)? == std::fs::read(module)?)
}

impl Module {
    /// Compiles the module with the flags of `.cargo/config.toml`, and returns its path.
    fn compile(&self, root: &Path, is_release: bool) -> Outcome<PathBuf> {
        let target_dir = root.join("target/wasm");
        let profile = self.profiles[usize::from(is_release)];
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(root).args(["build", "--package", self.package, "--profile", profile]);
        cargo.args(["--target", TARGET]).args(self.options).arg("--target-dir").arg(&target_dir);
        // These would override the flags of `.cargo/config.toml`.
        cargo.env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("RUSTFLAGS");
        if let Some(rustc) = std::env::var_os("FULMAR_WASM_RUSTC") {
            cargo.env("RUSTC", rustc);
        }
        run(&mut cargo)?;
        let file = self.package.replace('-', "_");
        let built = target_dir.join(TARGET).join(profile).join(file).with_extension("wasm");
        // Two modules come from one package, under one name.
        let kept = target_dir.join(self.name).with_extension("compiled.wasm");
        std::fs::copy(built, &kept)?;
        Ok(kept)
    }
}

fn generate(module: &Path, name: &str, place: &Path) -> Outcome<()> {
    let mut bindgen = Bindgen::new();
    bindgen.input_path(module).out_name(name).typescript(true).web(true)?;
    bindgen.keep_debug(false).remove_name_section(true).remove_producers_section(true);
    Ok(bindgen.generate(place)?)
}

/// Makes modules a third smaller, in parallel. After rustc's optimisations, levels 2 and 3 of `wasm-opt` make
/// nothing faster and the files another 1 and 4 % smaller, and take two and four times as long.
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
