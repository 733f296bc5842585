//! A child process that writes, and a parent that kills it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use fulmar_core::{Error, ErrorKind, Result, Rng};
use fulmar_store::{Disk, DiskLock, FsDisk, Store};
use rustix::process::Signal;

use crate::model::{COMMIT_STEPS_MAX, Model, Path, Step, checkpoint_name, options, reached, step_at, take};

/// The variable that makes an executable a child; it contains the arguments.
pub const CHILD: &str = "FULMAR_STORE_CHILD";
/// Maximum number of disk operations before a child is killed at one of them.
const KILL_POINTS: u64 = 120;

/// Statistics of the cycles.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Number of killed children.
    pub num_kills: u64,
    /// Number of steps acknowledged before the kill.
    pub num_acknowledged: u64,
    /// Number of checkpoints that were complete and compared.
    pub num_checkpoints: u64,
}

/// The progress of a run.
struct Run {
    path: Path,
    seed: u64,
    folder: PathBuf,
    step: u64,
    model: Model,
}

/// Kills `num_cycles` children that write to one store, half of them at a numbered operation and half at any
/// moment, and compares after each. `program` returns the command of a process that calls [`child`] if
/// [`CHILD`] is set.
pub fn kill_cycles(program: &dyn Fn() -> Command, path: Path, seed: u64, num_cycles: u64) -> Result<Counts> {
    // The writes of a killed process belong to the system, on any file system: one in memory makes a cycle
    // ten times shorter.
    let shared = PathBuf::from("/dev/shm");
    let parent = if shared.is_dir() { shared } else { std::env::temp_dir() };
    let folder = parent.join(format!("fulmar-torture-{}-{path:?}-{seed}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let mut run = Run { path, seed, folder, step: 0, model: Model::default() };
    let mut counts = Counts::default();
    for cycle in 0..num_cycles {
        let place = || format!("{path:?}, seed {seed}, cycle {cycle}");
        run.cycle(program, cycle, &mut counts).map_err(|error| error.at(place()))?;
    }
    if num_cycles > 0 {
        fs::remove_dir_all(&run.folder)?;
    }
    Ok(counts)
}

impl Run {
    fn cycle(&mut self, program: &dyn Fn() -> Command, cycle: u64, counts: &mut Counts) -> Result<()> {
        let mut rng = Rng::new(self.seed).stream("kill").fork(cycle);
        let kill_at = if cycle.is_multiple_of(2) { rng.below(KILL_POINTS)? } else { u64::MAX };
        let arguments =
            format!("{:?} {} {} {kill_at} {}", self.path, self.seed, self.step, self.folder.display());
        let mut child =
            program().env(CHILD, arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let acknowledged = killed(&mut child, 1 + rng.below(20)?)?.unwrap_or(self.step);
        counts.num_kills += 1;
        counts.num_acknowledged += acknowledged - self.step;

        let mut models = vec![self.model.clone()];
        for index in self.step..acknowledged + COMMIT_STEPS_MAX + 1 {
            let mut model = models[models.len() - 1].clone();
            model.apply(&step_at(self.path, self.seed, index, model.len()));
            models.push(model);
        }
        let store = Store::open(FsDisk::new(&self.folder)?, &options())?;
        let step = reached(&store, &models, self.step, acknowledged)?;
        drop(store);
        counts.num_checkpoints += self.check_checkpoints(&models)?;
        self.model.clone_from(&models[(step - self.step) as usize]);
        self.step = step;
        Ok(())
    }

    /// Compares the checkpoints that the last child made, and removes them.
    fn check_checkpoints(&self, models: &[Model]) -> Result<u64> {
        let mut num_whole = 0;
        for (i, model) in models.iter().enumerate() {
            let folder = self.folder.join(checkpoint_name(self.step + i as u64));
            if !folder.exists() {
                continue;
            }
            let disk = FsDisk::new(&folder)?;
            if disk.list()?.iter().any(|(name, _)| name == "super.0") {
                reached(&Store::open(disk, &options())?, std::slice::from_ref(model), 0, 0)?;
                num_whole += 1;
            }
            fs::remove_dir_all(folder)?;
        }
        Ok(num_whole)
    }
}

/// Kills `child` once it has acknowledged `num_wanted` times or has ended; returns the last acknowledged
/// step.
fn killed(child: &mut Child, num_wanted: u64) -> Result<Option<u64>> {
    let Some(mut answers) = child.stderr.take() else {
        return Err(Error::new(ErrorKind::Io, "a child must have an error output"));
    };
    let mut last = None;
    let mut answer = [0; 8];
    for _ in 0..num_wanted {
        if answers.read_exact(&mut answer).is_err() {
            break;
        }
        last = Some(u64::from_le_bytes(answer));
    }
    // The child continues to write while it is being killed.
    child.kill()?;
    // A child that fails writes text in place of its answers.
    let status = child.wait()?;
    if status.signal() != Some(Signal::KILL.as_raw()) {
        return Err(Error::new(ErrorKind::Io, format!("a child must live until it is killed: got {status}")));
    }
    while answers.read_exact(&mut answer).is_ok() {
        last = Some(u64::from_le_bytes(answer));
    }
    Ok(last)
}

/// Writes until it is killed, and prints each acknowledged step.
pub fn child(arguments: &str) -> Result<()> {
    let mut parts = arguments.splitn(5, ' ');
    let mut next =
        || parts.next().ok_or_else(|| Error::new(ErrorKind::Malformed, "a child must have five arguments"));
    let path = Path::parse(next()?)?;
    let number = |text: &str| {
        text.parse::<u64>().map_err(|error| Error::new(ErrorKind::Malformed, format!("{text:?}: {error}")))
    };
    let (seed, first, kill_at) = (number(next()?)?, number(next()?)?, number(next()?)?);
    let disk = KillDisk { inner: FsDisk::new(next()?)?, left: AtomicU64::new(kill_at) };
    let mut store = Store::open(disk, &options())?;
    let mut answers = std::io::stderr();
    for index in first.. {
        let step = step_at(path, seed, index, store.len());
        take(&mut store, &step, index)?;
        if matches!(step, Step::Commit | Step::Checkpoint) {
            answers.write_all(&(index + 1).to_le_bytes())?;
            answers.flush()?;
        }
    }
    Ok(())
}

/// A disk that kills its process at one of its operations: before it, or during a write.
struct KillDisk {
    inner: FsDisk,
    left: AtomicU64,
}

impl KillDisk {
    fn count(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            kill_myself();
        }
    }
}

fn kill_myself() {
    // This fails only if the process does not exist, and it does.
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
}

impl Disk for KillDisk {
    fn list(&self) -> Result<Vec<(String, u64)>> {
        self.inner.list()
    }

    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.inner.read_at(name, offset, bytes)
    }

    fn allocate(&self, name: &str, len: u64) -> Result<()> {
        self.count();
        self.inner.allocate(name, len)
    }

    fn write_at(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.inner.write_at(name, offset, &bytes[..bytes.len() / 2])?;
            kill_myself();
        }
        self.inner.write_at(name, offset, bytes)
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.count();
        self.inner.sync(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.count();
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.count();
        self.inner.remove(name)
    }

    fn link(&self, name: &str, folder: &str) -> Result<()> {
        self.count();
        self.inner.link(name, folder)
    }

    fn folder(&self, name: &str) -> Result<Box<dyn Disk>> {
        let inner = FsDisk::new(self.inner.path().join(name))?;
        // Kills inside a folder are counted by the links before it and the operations after it.
        Ok(Box::new(inner))
    }

    fn lock(&self) -> Result<DiskLock> {
        self.inner.lock()
    }
}
