//! Sets the linker options of a Node addon.

fn main() {
    // On Linux that is nothing. There `setup` would only make the build after the first one compile the whole addon again: it watches a
    // variable that napi's command sets where no types were written yet, and never again.
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rerun-if-env-changed=NAPI_TYPE_DEF_TMP_FOLDER");
    } else {
        napi_build::setup();
    }
}
