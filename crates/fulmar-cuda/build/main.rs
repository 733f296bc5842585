//! Embeds `compiled/kernels.fatbin`, if `cargo xtask kernels` made it from the sources that are here. Nothing of CUDA is needed.

mod stamp;

use std::path::Path;
use std::{env, fs};

#[expect(clippy::print_stdout, reason = "cargo reads what a build script prints")]
fn main() -> std::io::Result<()> {
    println!("cargo::rustc-check-cfg=cfg(has_kernels)");
    // The folder: a path that does not exist yet would run this at every build.
    println!("cargo::rerun-if-changed=.");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made_from = fs::read_to_string(root.join("compiled/stamp")).unwrap_or_default();
    let is_native = env::var_os("CARGO_FEATURE_DRIVER").is_some()
        && env::var("CARGO_CFG_TARGET_FAMILY").is_ok_and(|family| family != "wasm");
    if is_native && made_from == stamp::stamp(&root.join("kernels"))? {
        println!("cargo::rustc-cfg=has_kernels");
        let image = Path::new(&env::var("OUT_DIR").unwrap_or_default()).join("kernels.bin");
        let mark = format!("fulmar kernels {made_from}\n");
        fs::write(&image, [mark.as_bytes(), &fs::read(root.join("compiled/kernels.fatbin"))?].concat())?;
        println!("cargo::rustc-env=FULMAR_FATBIN={}", image.display());
    }
    Ok(())
}
