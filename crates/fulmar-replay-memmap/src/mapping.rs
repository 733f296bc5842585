//! A file mapped by several processes at the same time: every access is atomic, so there are no data races.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use fulmar_core::{Error, ErrorKind, Result};
use memmap2::{MmapOptions, MmapRaw};

/// A mapped file.
#[derive(Debug)]
pub(super) struct Mapping {
    memory: MmapRaw,
    len: usize,
}

impl Mapping {
    /// Maps the file at `path`, which must have `len` bytes, at least one.
    pub(super) fn open(path: &Path, len: u64) -> Result<Self> {
        let open = || {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            let metadata = file.metadata()?;
            let found = metadata.len();
            // Mapped memory past the end of a file cannot be accessed.
            if !metadata.is_file() || found != len || len == 0 {
                let detail = format!("must be a file of {len} bytes: got {found}");
                return Err(Error::new(ErrorKind::Corrupt, detail));
            }
            let len = usize::try_from(len).map_err(|_| {
                Error::new(ErrorKind::OutOfMemory, format!("must fit in memory: got {len} bytes"))
            })?;
            Ok(Self { memory: MmapOptions::new().len(len).map_raw(&file)?, len })
        };
        open().map_err(|error| error.at(path.display()))
    }

    /// Returns the file as words, without a rest of less than 8 bytes.
    pub(super) fn words(&self) -> &[AtomicU64] {
        self.atoms()
    }

    /// Copies the bytes from `offset` on. `unit` is 1, 2, 4 or 8, divides offset and length, and is the same
    /// for every access to a byte.
    pub(super) fn read(&self, unit: usize, offset: usize, bytes: &mut [u8]) {
        match unit {
            8 => read(&self.atoms::<AtomicU64>()[offset / 8..], bytes),
            4 => read(&self.atoms::<AtomicU32>()[offset / 4..], bytes),
            2 => read(&self.atoms::<AtomicU16>()[offset / 2..], bytes),
            _ => read(&self.atoms::<AtomicU8>()[offset..], bytes),
        }
    }

    /// Writes `bytes` from `offset` on, see [`Mapping::read`].
    pub(super) fn write(&self, unit: usize, offset: usize, bytes: &[u8]) {
        match unit {
            8 => write(&self.atoms::<AtomicU64>()[offset / 8..], bytes),
            4 => write(&self.atoms::<AtomicU32>()[offset / 4..], bytes),
            2 => write(&self.atoms::<AtomicU16>()[offset / 2..], bytes),
            _ => write(&self.atoms::<AtomicU8>()[offset..], bytes),
        }
    }

    fn atoms<A: Atom>(&self) -> &[A] {
        // SAFETY: the map begins at a page, so it is aligned for all of them; it has `len` bytes, as the file
        // had when it was mapped, and the protocol never truncates it; it outlives the slice; each bit
        // pattern is a valid atom; all references to the memory are to atoms.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast::<A>(), self.len / size_of::<A>()) }
    }
}

/// An atomic integer of a few bytes.
trait Atom {
    fn read(&self, bytes: &mut [u8]);
    fn write(&self, bytes: &[u8]);
}

macro_rules! atom {
    ($($atomic:ty: $integer:ty;)*) => {
        $(impl Atom for $atomic {
            #[inline]
            fn read(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.load(Ordering::Relaxed).to_ne_bytes());
            }

            #[inline]
            fn write(&self, bytes: &[u8]) {
                let mut integer = [0; size_of::<$integer>()];
                integer.copy_from_slice(bytes);
                self.store(<$integer>::from_ne_bytes(integer), Ordering::Relaxed);
            }
        })*
    };
}

atom! {
    AtomicU8: u8;
    AtomicU16: u16;
    AtomicU32: u32;
    AtomicU64: u64;
}

fn read<A: Atom>(atoms: &[A], bytes: &mut [u8]) {
    bytes.chunks_exact_mut(size_of::<A>()).zip(atoms).for_each(|(bytes, atom)| atom.read(bytes));
}

fn write<A: Atom>(atoms: &[A], bytes: &[u8]) {
    bytes.chunks_exact(size_of::<A>()).zip(atoms).for_each(|(bytes, atom)| atom.write(bytes));
}
