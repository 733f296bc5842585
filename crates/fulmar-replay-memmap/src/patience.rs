//! Bounded waiting for other processes.

use std::time::Duration;

use fulmar_core::limits::REPLAY_MEMMAP_WAITS_MAX;
use fulmar_core::{Error, ErrorKind, Result};

use crate::folder::Folder;
use crate::ring::Busy;

/// Pause between checks of another process, after a short spin.
pub(super) const PAUSE: Duration = Duration::from_micros(100);
/// Number of checks before the first pause.
pub(super) const SPINS: usize = 64;

/// Waits for other processes, a bounded number of times.
#[derive(Default)]
pub(super) struct Patience(usize);

impl Patience {
    /// Recovers from a dead process, or waits a moment; returns an error after too many waits.
    pub(super) fn wait(&mut self, folder: &Folder, busy: Busy, row: Option<usize>) -> Result<()> {
        self.0 += 1;
        let Busy::By(slot) = busy else {
            std::thread::yield_now();
            return self.checked("rows");
        };
        if self.0.is_multiple_of(SPINS) {
            if folder.bury(slot, row)? {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        } else {
            std::thread::yield_now();
        }
        self.checked(&format!("the process of slot {slot}"))
    }

    fn checked(&self, who: &str) -> Result<()> {
        if self.0 < REPLAY_MEMMAP_WAITS_MAX {
            return Ok(());
        }
        let detail =
            format!("{who} must be ready after {REPLAY_MEMMAP_WAITS_MAX} checks: writes are still pending");
        Err(Error::new(ErrorKind::LimitExceeded, detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_waits_so_often_and_no_longer() {
        assert_eq!(Patience(REPLAY_MEMMAP_WAITS_MAX - 1).checked("rows"), Ok(()));
        let error = Patience(REPLAY_MEMMAP_WAITS_MAX).checked("rows").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    }
}
