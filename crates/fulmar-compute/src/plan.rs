//! Numbers by which the processor plans a pass. An operation on a GPU reads a copy there, which is made once.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use fulmar_core::Result;
use fulmar_cuda::{Argument, Buffer, Card};

/// A copy on a GPU of what its owner holds in main memory, made by the first operation that reads it.
#[derive(Debug)]
pub(crate) struct OnCard<T>(Mutex<Option<(Card, Arc<T>)>>);

impl<T> OnCard<T> {
    /// Returns the copy on `card`, made by `make` unless it is there and `fits`.
    pub(crate) fn get(
        &self,
        card: Card,
        fits: impl FnOnce(&T) -> bool,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*held {
            Some((of, copy)) if *of == card && fits(copy) => Ok(Arc::clone(copy)),
            _ => {
                let copy = Arc::new(make()?);
                *held = Some((card, Arc::clone(&copy)));
                Ok(copy)
            }
        }
    }

    /// Sets the copy on `card`.
    pub(crate) fn set(&self, card: Card, copy: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((card, Arc::new(copy)));
    }

    /// Drops the copy when the numbers change.
    pub(crate) fn forget(&mut self) {
        *self.0.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl<T> Default for OnCard<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// A copy of the owner makes its own.
impl<T> Clone for OnCard<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Numbers on a card, in a block that may hold others as well.
#[derive(Debug, Clone)]
pub(crate) struct Words {
    pub block: Arc<Buffer<u32>>,
    /// The place of the first one in the block.
    pub first: usize,
}

impl Words {
    /// Copies numbers to new memory.
    pub(crate) fn upload(card: Card, numbers: &[u32]) -> Result<Self> {
        Ok(Self { block: Arc::new(card.upload(numbers)?), first: 0 })
    }

    /// Returns the numbers from number `first` of these on.
    pub(crate) fn from(&self, first: usize) -> Self {
        Self { block: Arc::clone(&self.block), first: self.first + first }
    }

    /// Returns the address for a launch.
    pub(crate) fn argument(&self) -> Argument {
        self.block.from(self.first)
    }
}

/// A number of each row that all layers read: its position, its id or its row of a cache.
///
/// # Examples
/// ```
/// use fulmar_compute::RowNumbers;
/// let mut positions = RowNumbers::default();
/// positions.push(7);
/// assert_eq!(*positions, [7]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct RowNumbers {
    values: Vec<u32>,
    pub(crate) on_card: OnCard<Words>,
}

impl RowNumbers {
    /// Adds the number of one more row.
    pub fn push(&mut self, number: u32) {
        self.values.push(number);
        self.on_card.forget();
    }
}

impl Deref for RowNumbers {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.values
    }
}

/// Numbers of rows, as operations take them: a slice, which a GPU copies each time, or [`RowNumbers`].
#[derive(Debug, Clone, Copy)]
pub struct Numbers<'a> {
    values: &'a [u32],
    on_card: Option<&'a OnCard<Words>>,
}

impl<'a> Numbers<'a> {
    /// Returns the numbers in main memory.
    #[must_use]
    pub const fn cpu(self) -> &'a [u32] {
        self.values
    }

    /// Returns the numbers for an operation on a GPU, which takes its own copy.
    #[expect(clippy::unnecessary_wraps, reason = "views of a GPU can be those of another one")]
    pub(crate) const fn cuda(self, _card: Card) -> Result<Self> {
        Ok(self)
    }

    /// Returns the copy on `card`.
    pub(crate) fn on(self, card: Card) -> Result<Arc<Words>> {
        let make = || Words::upload(card, self.values);
        self.on_card.map_or_else(|| make().map(Arc::new), |on_card| on_card.get(card, |_| true, make))
    }
}

impl<'a> From<&'a RowNumbers> for Numbers<'a> {
    fn from(numbers: &'a RowNumbers) -> Self {
        Self { values: &numbers.values, on_card: Some(&numbers.on_card) }
    }
}

impl<'a> From<&'a [u32]> for Numbers<'a> {
    fn from(values: &'a [u32]) -> Self {
        Self { values, on_card: None }
    }
}

impl<'a> From<&'a Vec<u32>> for Numbers<'a> {
    fn from(values: &'a Vec<u32>) -> Self {
        values.as_slice().into()
    }
}

impl<'a, const N: usize> From<&'a [u32; N]> for Numbers<'a> {
    fn from(values: &'a [u32; N]) -> Self {
        values.as_slice().into()
    }
}
