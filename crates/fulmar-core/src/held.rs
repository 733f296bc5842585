//! Locks that a thread must not take twice.

use std::cell::RefCell;
use std::marker::PhantomData;

use crate::{Error, ErrorKind, Result};

thread_local! {
    /// The addresses of the locks that this thread holds.
    static HELD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Marks a lock as taken by this thread until the mark is dropped. Take one before a lock under which
/// callbacks of the caller run: a callback that needs the same lock then gets an error instead of a deadlock.
/// O(locks that the thread holds).
///
/// # Examples
/// ```
/// use fulmar_core::{ErrorKind, Held};
/// let lock = std::sync::Arc::new(std::sync::Mutex::new(7));
/// let held = Held::mark(&*lock, "the number")?;
/// assert_eq!(Held::mark(&*lock, "the number").unwrap_err().kind(), ErrorKind::Forbidden);
/// drop(held);
/// assert!(Held::mark(&*lock, "the number").is_ok());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Held {
    address: usize,
    /// Makes the mark `!Send`: it belongs to one thread.
    _thread: PhantomData<*const ()>,
}

impl Held {
    /// Marks the lock at `lock`, which must not move while marked; errors call it `name`.
    ///
    /// # Errors
    /// `Forbidden` if this thread already holds it.
    pub fn mark<T>(lock: &T, name: &str) -> Result<Self> {
        let address = std::ptr::from_ref(lock) as usize;
        HELD.with_borrow_mut(|held| {
            if held.contains(&address) {
                let detail = format!(
                    "{name} must not be used by a function that it is calling: call it after that function has returned"
                );
                return Err(Error::new(ErrorKind::Forbidden, detail));
            }
            held.push(address);
            Ok(Self { address, _thread: PhantomData })
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| {
            if let Some(place) = held.iter().rposition(|address| *address == self.address) {
                held.swap_remove(place);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_one_lock_and_of_one_thread() {
        let (one, other) = (Box::new(1_u64), Box::new(2_u64));
        let held = Held::mark(&*one, "one").unwrap();
        let second = Held::mark(&*other, "other").unwrap();
        let again = Held::mark(&*one, "one").unwrap_err();
        assert!(
            again.detail().starts_with("one must not be used by a function that it is calling"),
            "{again}"
        );
        std::thread::scope(|scope| {
            assert!(scope.spawn(|| Held::mark(&*one, "one").is_ok()).join().unwrap());
        });
        drop(held);
        assert!(Held::mark(&*one, "one").is_ok());
        assert!(Held::mark(&*other, "other").is_err());
        drop(second);
    }
}
