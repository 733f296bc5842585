//! Memory of a GPU, and ranges of it, which only kernels and copies read and write.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use fulmar_core::{Error, ErrorKind, Result};

use crate::card::{Fault, Lane};
use crate::graph_pool::GraphPool;
use crate::platform::Failure;
use crate::{Argument, Card, Grid};

/// Bytes from which on a copy to new memory has a stream of its own. Fewer bytes are in the order of the work: they are copied in no time, and
/// what was freed there can be given to them at once.
const APART_BYTES_MIN: usize = 64 << 10;

/// Elements in the memory of a GPU. Dropping it frees them once the work that is queued is done.
#[derive(Debug)]
pub struct Buffer<T> {
    card: Card,
    address: u64,
    len: usize,
    /// The pool that the memory goes back to.
    pool: Option<GraphPool>,
    elements: PhantomData<T>,
}

/// A range of elements of a [`Buffer`] to read.
#[derive(Debug)]
pub struct Slice<'a, T> {
    card: Card,
    address: u64,
    len: usize,
    elements: PhantomData<&'a [T]>,
}

/// A range of elements of a [`Buffer`] to write.
#[derive(Debug)]
pub struct SliceMut<'a, T> {
    card: Card,
    address: u64,
    len: usize,
    elements: PhantomData<&'a mut [T]>,
}

impl Card {
    /// Allocates `len` zeros.
    ///
    /// # Errors
    /// `OutOfMemory` with the bytes wanted and free, after the memory that the pool keeps was given back and asked for again;
    /// `Unavailable` with another error of the driver.
    pub fn zeros<T: Zeroable>(self, len: usize) -> Result<Buffer<T>> {
        self.filled(len, 0)
    }

    /// Allocates room for `len` elements, which hold what was there before.
    ///
    /// # Errors
    /// The errors of [`Card::zeros`].
    pub fn room<T: Pod>(self, len: usize) -> Result<Buffer<T>> {
        self.allocate(len)
    }

    /// Allocates `len` elements of which every byte is 0xff: NaN for floats.
    ///
    /// # Errors
    /// The errors of [`Card::zeros`].
    pub fn poisoned<T: Pod>(self, len: usize) -> Result<Buffer<T>> {
        self.filled(len, 0xff)
    }

    /// Copies `values` to new memory. They may change when this returns. A large copy, of 64 KiB or more, does not wait for the work that is queued.
    ///
    /// # Errors
    /// The errors of [`Card::zeros`].
    pub fn upload<T: Copy>(self, values: &[T]) -> Result<Buffer<T>> {
        let lane = if size_of_val(values) < APART_BYTES_MIN { Lane::Work } else { Lane::Copies };
        // Never from a pool: its memory may still be read by work that is queued, and what is uploaded is kept by its owner.
        let mut buffer = self.allocate_from(None, lane, values.len())?;
        self.send(values, buffer.view_mut(), lane)?;
        Ok(buffer)
    }

    /// Copies `values` over elements of the GPU, after the work that is queued. They may change when this returns.
    ///
    /// # Errors
    /// `Unavailable` with the driver's error.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn write<T: Copy>(self, values: &[T], to: SliceMut<'_, T>) -> Result<()> {
        self.send(values, to, Lane::Work)
    }

    fn send<T: Copy>(self, values: &[T], to: SliceMut<'_, T>, lane: Lane) -> Result<()> {
        assert_eq!(values.len(), to.len, "as many values as elements");
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: any value can be read as its bytes by the driver, which copies padding as it is.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), std::mem::size_of_val(values))
        };
        let to = to.into_address();
        self.run("a copy to the GPU", |context| Ok(context.upload(to, bytes, lane)?))
    }

    /// Waits for all that is queued and returns elements of the GPU.
    ///
    /// # Errors
    /// `Unavailable` with the driver's error, which may be that of a kernel before.
    pub fn read<T: Copy>(self, from: Slice<'_, T>) -> Result<Vec<T>> {
        let mut values: Vec<T> = Vec::with_capacity(from.len);
        if from.is_empty() {
            return Ok(values);
        }
        // SAFETY: any memory can be written as bytes, and the vector has memory for `len` elements.
        let bytes = unsafe {
            let place = values.spare_capacity_mut().as_mut_ptr().cast::<MaybeUninit<u8>>();
            std::slice::from_raw_parts_mut(place, from.len * size_of::<T>())
        };
        self.wait("a copy from the GPU", |context| context.download(bytes, from.address))?;
        // SAFETY: the copy is done, and the elements of a buffer are valid values of their type.
        unsafe { values.set_len(from.len) };
        Ok(values)
    }

    /// Queues a copy of elements.
    ///
    /// # Errors
    /// `Unavailable` with the driver's error.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy<T: Copy>(self, from: Slice<'_, T>, to: SliceMut<'_, T>) -> Result<()> {
        assert_eq!(from.len, to.len, "a copy has one length");
        if from.is_empty() {
            return Ok(());
        }
        let (to, bytes) = (to.into_address(), from.len * size_of::<T>());
        self.run("a copy on the GPU", |context| Ok(context.copy(to, from.address, bytes)?))
    }

    /// Queues the same value for each element, of 1, 2, 4 or 8 bytes.
    ///
    /// # Errors
    /// `Incompatible` for another size; `Unavailable` with the driver's error.
    pub fn fill<T: Copy>(self, to: SliceMut<'_, T>, value: T) -> Result<()> {
        let (len, address) = (to.len, to.into_address());
        if len == 0 {
            return Ok(());
        }
        let mut word = [0_u8; 8];
        let bytes = size_of::<T>();
        if !matches!(bytes, 1 | 2 | 4 | 8) {
            let detail = format!("elements must have 1, 2, 4 or 8 bytes to be filled on a GPU: got {bytes}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        // SAFETY: the value has that many bytes, and so does the word.
        unsafe { std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), word.as_mut_ptr(), bytes) };
        if bytes == 8 {
            let grid =
                Grid { blocks: (len.div_ceil(256).min(1024) as u32, 1), threads: 256, shared_bytes: 0 };
            let arguments = [Argument::Address(address), u64::from_ne_bytes(word).into(), len.into()];
            return self.queue("fill_8", grid, arguments);
        }
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        self.run("a fill", |context| Ok(context.fill(address, word, bytes, len)?))
    }

    /// Returns a copy of elements, on their GPU.
    ///
    /// # Errors
    /// The errors of [`Card::zeros`].
    pub fn duplicate<T: Copy>(self, from: Slice<'_, T>) -> Result<Buffer<T>> {
        let mut copied = self.allocate(from.len)?;
        self.copy(from, copied.view_mut())?;
        Ok(copied)
    }

    fn filled<T>(self, len: usize, byte: u32) -> Result<Buffer<T>> {
        let buffer = self.allocate(len)?;
        let bytes = len * size_of::<T>();
        if bytes > 0 {
            self.run("a fill", |context| Ok(context.fill(buffer.address, byte, 1, bytes)?))?;
        }
        Ok(buffer)
    }

    /// Allocates `len` elements with any bytes, from the pool of the thread's work if it has one.
    pub(crate) fn allocate<T>(self, len: usize) -> Result<Buffer<T>> {
        self.allocate_from(GraphPool::current(), Lane::Work, len)
    }

    fn allocate_from<T>(self, pool: Option<GraphPool>, lane: Lane, len: usize) -> Result<Buffer<T>> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| out_of_memory(usize::MAX, 0))?.max(1);
        let address = match &pool {
            Some(pool) => pool.take(self, bytes)?,
            None => self.allocate_bytes(bytes, lane)?,
        };
        Ok(Buffer { card: self, address, len, pool, elements: PhantomData })
    }

    /// Returns the address of new memory.
    ///
    /// # Errors
    /// The errors of [`Card::zeros`].
    pub(crate) fn allocate_bytes(self, bytes: usize, lane: Lane) -> Result<u64> {
        self.run("an allocation", |context| {
            let is_short = |done: &std::result::Result<u64, Failure>| {
                matches!(done, Err(failure) if failure.is_out_of_memory)
            };
            let mut done = context.allocate(bytes, lane);
            if is_short(&done) {
                context.trim()?;
                done = context.allocate(bytes, lane);
            }
            if is_short(&done) {
                return Err(Fault::Ours(out_of_memory(bytes, context.free_bytes()?)));
            }
            Ok(done?)
        })
    }

    /// Frees memory once the work that is queued is done.
    pub(crate) fn free_at(self, address: u64) {
        // A failure leaves the memory to the driver.
        let _ = self.run("a free", |context| Ok(context.free(address)?));
    }
}

fn out_of_memory(wanted: usize, free: usize) -> Error {
    let detail = format!("out of memory on the GPU: {wanted} bytes wanted, {free} bytes free");
    Error::new(ErrorKind::OutOfMemory, detail)
}

impl<T> Buffer<T> {
    /// Returns the GPU of the elements.
    #[must_use]
    pub fn card(&self) -> Card {
        self.card
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns all elements to read.
    #[must_use]
    pub fn view(&self) -> Slice<'_, T> {
        Slice { card: self.card, address: self.address, len: self.len, elements: PhantomData }
    }

    /// Returns all elements to write.
    #[must_use]
    pub fn view_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut { card: self.card, address: self.address, len: self.len, elements: PhantomData }
    }

    /// Returns the address of element number `first` for a launch.
    ///
    /// # Panics
    /// If there are fewer elements.
    #[must_use]
    pub fn from(&self, first: usize) -> Argument {
        self.view().slice(first..self.len).into()
    }

    /// Returns a copy of the elements on the host.
    ///
    /// # Errors
    /// The errors of [`Card::read`].
    pub fn read(&self) -> Result<Vec<T>>
    where
        T: Copy,
    {
        self.card.read(self.view())
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        match &self.pool {
            Some(pool) => pool.give(self.card, self.address, (self.len * size_of::<T>()).max(1)),
            None => self.card.free_at(self.address),
        }
    }
}

impl<T> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slice<'_, T> {}

impl<T> Slice<'_, T> {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(self) -> usize {
        self.len
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the GPU of the elements.
    #[must_use]
    pub fn card(self) -> Card {
        self.card
    }

    /// Returns the address of the first element.
    #[must_use]
    pub fn address(self) -> u64 {
        self.address
    }

    /// Returns a range of the elements.
    ///
    /// # Panics
    /// If the range ends past the last element.
    #[must_use]
    pub fn slice(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "a range is within its elements");
        Self { address: self.address + (range.start * size_of::<T>()) as u64, len: range.len(), ..self }
    }
}

impl<'a, T> SliceMut<'a, T> {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the GPU of the elements.
    #[must_use]
    pub fn card(&self) -> Card {
        self.card
    }

    pub(crate) fn into_address(self) -> u64 {
        self.address
    }

    /// Returns the same elements for a shorter time.
    #[must_use]
    pub fn reborrow(&mut self) -> SliceMut<'_, T> {
        SliceMut { card: self.card, address: self.address, len: self.len, elements: PhantomData }
    }

    /// Returns the elements to read.
    #[must_use]
    pub fn view(&self) -> Slice<'_, T> {
        Slice { card: self.card, address: self.address, len: self.len, elements: PhantomData }
    }

    /// Returns the elements before number `at`, and the others.
    ///
    /// # Panics
    /// If there are fewer elements.
    #[must_use]
    pub fn split_at(self, at: usize) -> (SliceMut<'a, T>, SliceMut<'a, T>) {
        assert!(at <= self.len, "a range is within its elements");
        let behind = self.address + (at * size_of::<T>()) as u64;
        (
            SliceMut { card: self.card, address: self.address, len: at, elements: PhantomData },
            SliceMut { card: self.card, address: behind, len: self.len - at, elements: PhantomData },
        )
    }

    /// Returns a range of the elements.
    ///
    /// # Panics
    /// If the range ends past the last element.
    #[must_use]
    pub fn slice(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end, "a range is within its elements");
        self.split_at(range.end).0.split_at(range.start).1
    }
}
