//! `cargo xtask kernels`: compiles `crates/fulmar-cuda/kernels` with nvcc to `crates/fulmar-cuda/compiled/kernels.fatbin`, which the
//! next build embeds. All files are one unit of nvcc, so that one module has all kernels. With `--check` the result is in `target/kernels`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[path = "../../fulmar-cuda/build/stamp.rs"]
mod stamp;

/// The oldest nvcc that has all flags, as (major, minor). A newer minor version may write PTX that driver 580 cannot read.
const NVCC_MIN: (u32, u32) = (13, 0);

/// The command that installs nvcc without a toolkit, see docs/building.md.
const INSTALL: &str = "python3 -m venv .cuda && .cuda/bin/pip install nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 \
nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85";

/// Largest size of the compiled kernels, by which every addon grows.
const BYTES_MAX: u64 = 3_000_000;

/// Kernel -> the reason why it may use a stack or spill registers.
const STACK_ALLOWED: [(&str, &str); 0] = [];

/// The resources of one kernel for one architecture, as ptxas reports them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Usage {
    kernel: String,
    architecture: String,
    registers: u32,
    stack_bytes: u32,
    spill_bytes: u32,
    shared_bytes: u32,
}

/// Compiles the kernels into the folder `made`, relative to the root, and returns a table of what each uses.
///
/// # Errors
/// A message if nvcc is missing or too old, if it warns, if a kernel uses a stack or spills without being listed, or if the
/// compiled kernels are larger than [`BYTES_MAX`].
pub fn compile(root: &Path, made: &str) -> Result<String, String> {
    let nvcc = nvcc(root)
        .ok_or(format!("kernels: nvcc {}.{} or later is missing: {INSTALL}\n", NVCC_MIN.0, NVCC_MIN.1))?;
    let (kernels, made) = (root.join("crates/fulmar-cuda/kernels"), root.join(made));
    let failed = |error: std::io::Error| format!("kernels: {}: {error}\n", made.display());
    fs::create_dir_all(&made).map_err(failed)?;
    let stamp_file = made.join("stamp");
    // Without it no build embeds what is half done.
    fs::write(&stamp_file, "").map_err(failed)?;
    let stamp = stamp::stamp(&kernels).map_err(failed)?;
    let unit = made.join("kernels.cu");
    fs::write(&unit, unit_of(&kernels).map_err(failed)?).map_err(failed)?;
    let flags = fs::read_to_string(kernels.join("flags.txt")).map_err(failed)?;
    let output = Command::new(&nvcc)
        .args(flags.split_whitespace())
        .args(["-Xptxas=-v", "--threads=2", "-I"])
        .arg(&kernels)
        .arg("-o")
        .arg(made.join("kernels.fatbin"))
        .arg(&unit)
        .output()
        .map_err(|error| format!("kernels: {}: {error}\n", nvcc.display()))?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if !output.status.success() {
        return Err(format!("{text}kernels: {} failed\n", nvcc.display()));
    }
    let usages = usages(&text);
    check(&usages)?;
    let bytes = fs::metadata(made.join("kernels.fatbin")).map_err(failed)?.len();
    check_size(bytes)?;
    fs::write(&stamp_file, stamp).map_err(failed)?;
    Ok(format!("{}kernels.fatbin: {bytes} bytes\n", table(&usages)))
}

/// Returns a file that includes every file of kernels.
fn unit_of(kernels: &Path) -> std::io::Result<String> {
    let entries = fs::read_dir(kernels)?.collect::<std::io::Result<Vec<_>>>()?;
    let mut names: Vec<_> =
        entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.ends_with(".cu"));
    names.sort();
    Ok(names.iter().map(|name| format!("#include \"{name}\"\n")).collect())
}

/// Returns the first nvcc that is new enough: of `FULMAR_NVCC`, of a toolkit that the environment names, of the path, of Python's
/// packages, of `.cuda` in the root, of the usual folder.
fn nvcc(root: &Path) -> Option<PathBuf> {
    let variable = |name: &str, end: &str| env::var_os(name).map(|value| Path::new(&value).join(end));
    let of_python = || {
        let program = "import nvidia.cu13 as m; print(list(m.__path__)[0])";
        let output = Command::new("python3").args(["-c", program]).output().ok()?;
        let folder = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| Path::new(folder.trim()).join("bin/nvcc"))
    };
    let of_root = || {
        let pythons = fs::read_dir(root.join(".cuda/lib")).ok()?.filter_map(Result::ok);
        let mut found = pythons.map(|python| python.path().join("site-packages/nvidia/cu13/bin/nvcc"));
        found.find(|path| path.exists())
    };
    let places = [
        env::var_os("FULMAR_NVCC").map(PathBuf::from),
        variable("CUDA_HOME", "bin/nvcc"),
        variable("CUDA_PATH", "bin/nvcc"),
        Some(PathBuf::from("nvcc")),
        of_python(),
        of_root(),
        Some(PathBuf::from("/usr/local/cuda/bin/nvcc")),
    ];
    places.into_iter().flatten().find(|path| version(path).is_some_and(|version| version >= NVCC_MIN))
}

fn version(nvcc: &Path) -> Option<(u32, u32)> {
    let output = Command::new(nvcc).arg("--version").output().ok()?;
    version_in(&String::from_utf8_lossy(&output.stdout))
}

/// Returns the version in what `nvcc --version` writes.
fn version_in(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once("release ")?.1.split_once(',')?.0.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns what ptxas wrote with `-v`: some lines for each kernel and architecture.
fn usages(text: &str) -> Vec<Usage> {
    let mut found: Vec<Usage> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.split_once("Compiling entry function '").map(|(_, rest)| rest) {
            let mut names = rest.split('\'').step_by(2);
            let (kernel, architecture) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
            found.push(Usage {
                kernel: kernel.to_owned(),
                architecture: architecture.to_owned(),
                ..Usage::default()
            });
        }
        let Some(last) = found.last_mut() else { continue };
        if let Some(bytes) = number_before(line, " bytes stack frame") {
            last.stack_bytes = bytes;
            last.spill_bytes = number_before(line, " bytes spill stores").unwrap_or_default();
        }
        if let Some(registers) = number_before(line, " registers") {
            last.registers = registers;
            last.shared_bytes = number_before(line, " bytes smem").unwrap_or_default();
        }
    }
    found
}

fn number_before(line: &str, words: &str) -> Option<u32> {
    line.split_once(words)?.0.rsplit([' ', ',']).next()?.parse().ok()
}

/// Refuses stacks and spills that are not listed.
fn check(usages: &[Usage]) -> Result<(), String> {
    let uses_stack = |usage: &&Usage| usage.stack_bytes + usage.spill_bytes > 0;
    let is_listed = |usage: &&Usage| STACK_ALLOWED.iter().any(|(kernel, _)| *kernel == usage.kernel);
    let wrong: Vec<_> = usages.iter().filter(uses_stack).filter(|usage| !is_listed(usage)).collect();
    if usages.is_empty() {
        return Err("kernels: ptxas reported no kernel\n".to_owned());
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let lines = wrong.iter().map(|Usage { kernel, architecture, stack_bytes, spill_bytes, .. }| {
        format!("kernels: {kernel} for {architecture} has a stack of {stack_bytes} bytes and spills {spill_bytes}; use fewer registers, or list it with a reason\n")
    });
    Err(lines.collect())
}

fn check_size(bytes: u64) -> Result<(), String> {
    if bytes <= BYTES_MAX {
        return Ok(());
    }
    Err(format!("kernels: kernels.fatbin must be at most {BYTES_MAX} bytes: got {bytes}\n"))
}

fn table(usages: &[Usage]) -> String {
    let head = format!(
        "{:<32}{:>8}{:>10}{:>8}{:>8}{:>8}\n",
        "kernel", "for", "registers", "stack", "spills", "shared"
    );
    let rows = usages.iter().map(|usage| {
        let Usage { kernel, architecture, registers, stack_bytes, spill_bytes, shared_bytes } = usage;
        format!(
            "{kernel:<32}{architecture:>8}{registers:>10}{stack_bytes:>8}{spill_bytes:>8}{shared_bytes:>8}\n"
        )
    });
    head + &rows.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'rows' for 'sm_80'
ptxas info    : Function properties for rows
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 1 barriers, 128 bytes smem, 416 bytes cmem[0]
ptxas info    : Compiling entry function 'product' for 'sm_90a'
    40 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
";

    #[test]
    fn a_report_of_ptxas_is_read() {
        let usage = |kernel: &str, architecture: &str, numbers: [u32; 4]| Usage {
            kernel: kernel.to_owned(),
            architecture: architecture.to_owned(),
            registers: numbers[0],
            stack_bytes: numbers[1],
            spill_bytes: numbers[2],
            shared_bytes: numbers[3],
        };
        let wanted = [usage("rows", "sm_80", [30, 0, 0, 128]), usage("product", "sm_90a", [255, 40, 8, 0])];
        assert_eq!(usages(REPORT), wanted);
        assert!(table(&wanted).contains("product"));
    }

    #[test]
    fn a_stack_without_a_reason_is_refused() {
        let found = usages(REPORT);
        assert_eq!(check(&found[..1]), Ok(()));
        assert!(
            check(&found).unwrap_err().contains("product for sm_90a has a stack of 40 bytes and spills 8")
        );
        assert!(check(&[]).is_err());
    }

    #[test]
    fn compiled_kernels_have_a_largest_size() {
        assert_eq!(check_size(BYTES_MAX), Ok(()));
        assert!(check_size(BYTES_MAX + 1).unwrap_err().contains("at most 3000000 bytes: got 3000001"));
    }

    #[test]
    fn the_version_of_nvcc_is_read() {
        let text = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\n";
        assert_eq!(version_in(text), Some((13, 0)));
        assert_eq!(version_in("nvcc"), None);
    }

    #[test]
    fn a_stamp_changes_with_a_name_and_with_a_content() {
        let folder = env::temp_dir().join(format!("fulmar-stamp-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let of = |name: &str, text: &str| {
            fs::write(folder.join(name), text).unwrap();
            let found = stamp::stamp(&folder).unwrap();
            fs::remove_file(folder.join(name)).unwrap();
            found
        };
        let first = of("a.cu", "1");
        assert_eq!(of("a.cu", "1"), first);
        assert!(of("a.cu", "2") != first && of("b.cu", "1") != first);
        assert_eq!(of("a.cu", "1\r\n"), of("a.cu", "1\n"), "Git may write the line ends of Windows");
        fs::remove_dir(&folder).unwrap();
    }
}
