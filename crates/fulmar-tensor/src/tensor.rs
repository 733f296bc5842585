//! The tensor: a dtype, a shape, strides and an offset over shared storage.

use std::io::Write;
use std::sync::Arc;

use fulmar_compute::{Compute, Memory, View, dispatch};
use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};
use half::{bf16, f16};

use crate::element::{Element, with_element};
use crate::storage::{Storage, Stored, reserved, zeroed};

/// An n-dimensional array. Cloning and all views share the elements; writing copies them first if they are shared.
///
/// Two tensors are equal if dtype, shape and elements are, floats as IEEE compares them (NaN equals nothing).
///
/// # Examples
/// ```
/// use fulmar_tensor::Tensor;
/// let rows = Tensor::from_vec(&[2, 3], vec![1_i32, 2, 3, 4, 5, 6])?;
/// let column = rows.select(1, 0)?;
/// assert_eq!((column.shape(), column.to_vec::<i32>()?), (&[2][..], vec![1, 4]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Tensor {
    pub(crate) storage: Arc<Storage>,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    /// In elements.
    pub(crate) strides: Vec<usize>,
    /// In elements.
    pub(crate) offset: usize,
}

impl Tensor {
    /// Makes a tensor of `shape` from `values`, row-major. Does not copy.
    ///
    /// # Errors
    /// `ShapeMismatch` if the number of values differs from `shape`; `LimitExceeded` if it has too many
    /// dimensions.
    ///
    /// # Examples
    /// ```
    /// let mask = fulmar_tensor::Tensor::from_vec(&[3], vec![true, false, true])?;
    /// assert_eq!(mask.dtype(), fulmar_core::Dtype::Bool);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn from_vec<T: Element>(shape: &[usize], values: Vec<T>) -> Result<Self> {
        let len = num_elements(shape)?;
        if len != values.len() {
            let detail =
                format!("shape must hold {} elements: got {shape:?}, which holds {len}", values.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        Self::held(values.into(), shape)
    }

    /// Makes a tensor from memory that holds exactly the elements of `shape`.
    pub(crate) fn held<T: Element>(memory: Memory<T>, shape: &[usize]) -> Result<Self> {
        Ok(Self::over(T::store(memory), T::DTYPE, shape))
    }

    /// Copies `values`, row-major, into a tensor of `shape`.
    ///
    /// # Errors
    /// The errors of [`Tensor::from_vec`].
    pub fn from_slice<T: Element>(shape: &[usize], values: &[T]) -> Result<Self> {
        Self::from_vec(shape, values.to_vec())
    }

    /// Calls [`Tensor::from_vec`] for `f32`.
    ///
    /// # Errors
    /// The errors of [`Tensor::from_vec`].
    pub fn from_vec_f32(shape: &[usize], values: Vec<f32>) -> Result<Self> {
        Self::from_vec(shape, values)
    }

    /// Makes a tensor from the bit patterns of 16-bit floats of `dtype`. Copies.
    ///
    /// # Errors
    /// `Incompatible` if `dtype` is neither `F16` nor `Bf16`; the errors of [`Tensor::from_vec`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// let one = fulmar_tensor::Tensor::from_bits(Dtype::Bf16, &[1], &[0x3F80])?;
    /// assert_eq!(one.to_f32_vec(), [1.0]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn from_bits(dtype: Dtype, shape: &[usize], bits: &[u16]) -> Result<Self> {
        match dtype {
            Dtype::F16 => Self::from_vec(shape, bits.iter().map(|bits| f16::from_bits(*bits)).collect()),
            Dtype::Bf16 => Self::from_vec(shape, bits.iter().map(|bits| bf16::from_bits(*bits)).collect()),
            other => Err(wrong_dtype("f16 or bf16", other)),
        }
    }

    /// Makes a tensor from little-endian bytes, row-major; a bool is one byte, 0 or 1. Copies.
    ///
    /// # Errors
    /// `ShapeMismatch` if the length differs from `shape`; `Corrupt` if a bool is neither 0 nor 1;
    /// `LimitExceeded` if `shape` has too many dimensions.
    pub fn from_bytes(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Result<Self> {
        let len = num_elements(shape)?;
        if len.checked_mul(dtype.size_bytes()) != Some(bytes.len()) {
            let detail =
                format!("bytes must hold {len} elements of {}: got {} bytes", dtype.name(), bytes.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        Ok(Self::over(Storage::read(dtype, len, &mut &*bytes)?, dtype, shape))
    }

    /// Returns a tensor of zeros (`false` for bools).
    ///
    /// # Errors
    /// `LimitExceeded` if `shape` has too many dimensions; `OutOfMemory` if the tensor does not fit in memory.
    ///
    /// # Examples
    /// ```
    /// let zeros = fulmar_tensor::Tensor::zeros(fulmar_core::Dtype::I64, &[2, 2])?;
    /// assert_eq!(zeros.as_slice::<i64>()?, [0; 4]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn zeros(dtype: Dtype, shape: &[usize]) -> Result<Self> {
        let len = num_elements(shape)?;
        with_element!(dtype, T => Self::from_vec(shape, zeroed::<T>(len)?))
    }

    /// Returns a contiguous tensor over the whole of a storage that holds exactly the elements of `shape`.
    pub(crate) fn over(storage: Storage, dtype: Dtype, shape: &[usize]) -> Self {
        let strides = contiguous_strides(shape);
        Self { storage: Arc::new(storage), dtype, shape: shape.to_vec(), strides, offset: 0 }
    }

    /// Returns any `shape`, however large, over one bool: to find the shape that an operation gives.
    pub(crate) fn one_element_as(shape: &[usize]) -> Self {
        let one = Self::over(bool::store(vec![false].into()), Dtype::Bool, &[]);
        Self { shape: shape.to_vec(), strides: vec![0; shape.len()], ..one }
    }

    /// Returns the element type.
    #[must_use]
    pub const fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the length of each dimension; empty for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the distance between neighbours in the storage, in elements, for each dimension.
    #[must_use]
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Returns the number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Returns the number of elements: 1 for a scalar, 0 if any dimension is 0.
    #[must_use]
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns whether the elements are row-major and without gaps, as [`Tensor::as_slice`] needs.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        // No list of strides: buffers call this at every draw, which must not allocate.
        let mut dense = 1_usize;
        for (dim, stride) in self.shape.iter().zip(&self.strides).rev() {
            if *dim != 1 && *stride != dense {
                return self.num_elements() <= 1;
            }
            dense = dense.saturating_mul(*dim);
        }
        true
    }

    /// Returns whether both tensors share one storage, whatever elements of it they show.
    #[must_use]
    pub fn shares_storage(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
    }

    /// Returns the elements, row-major, without a copy.
    ///
    /// # Errors
    /// `Incompatible` if `T` is not the dtype, or if the tensor is a view with gaps ([`Tensor::contiguous`] makes it dense).
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Tensor;
    /// let matrix = Tensor::from_vec_f32(&[2, 2], vec![1.0, 2.0, 3.0, 4.0])?;
    /// assert_eq!(matrix.select(0, 1)?.as_slice::<f32>()?, [3.0, 4.0]);
    /// assert!(matrix.select(1, 0)?.as_slice::<f32>().is_err());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        let elements = self.elements::<T>()?;
        if !self.is_contiguous() {
            return Err(not_contiguous(self));
        }
        // An empty view may carry any offset.
        Ok(elements.get(self.offset..self.offset + self.num_elements()).unwrap_or_default())
    }

    /// Calls [`Tensor::as_slice`] for `f32`.
    ///
    /// # Errors
    /// The errors of [`Tensor::as_slice`].
    pub fn as_f32(&self) -> Result<&[f32]> {
        self.as_slice()
    }

    /// Returns the elements for writing. Copies them first, O(n), if another tensor shares the storage or
    /// there are gaps.
    ///
    /// # Errors
    /// `Incompatible` if `T` is not the dtype.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Tensor;
    /// let before = Tensor::from_vec(&[2], vec![1_u32, 2])?;
    /// let mut after = before.clone();
    /// after.as_mut_slice::<u32>()?[0] = 7;
    /// assert_eq!((before.to_vec::<u32>()?, after.to_vec::<u32>()?), (vec![1, 2], vec![7, 2]));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        self.elements::<T>()?;
        if !self.is_contiguous() || Arc::get_mut(&mut self.storage).is_none() {
            *self = self.owned::<T>()?;
        }
        let (dtype, start, len) = (self.dtype, self.offset, self.num_elements());
        match Arc::get_mut(&mut self.storage).and_then(T::memory_mut) {
            Some(memory) => Ok(memory.cpu_mut().get_mut(start..start + len).unwrap_or_default()),
            None => Err(wrong_dtype(T::DTYPE.name(), dtype)),
        }
    }

    /// Copies the elements out, row-major.
    ///
    /// # Errors
    /// `Incompatible` if `T` is not the dtype; `OutOfMemory` if there is no memory for them.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let mut values = reserved(self.num_elements())?;
        self.append_to(&mut values)?;
        Ok(values)
    }

    fn append_to<T: Element>(&self, values: &mut Vec<T>) -> Result<()> {
        let elements = self.elements::<T>()?;
        self.runs().for_each(|run| values.extend_from_slice(&elements[run]));
        Ok(())
    }

    /// Copies the elements, whose dtype is that of `T`. Memory that cannot be had ends the program, as in `Vec::clone`.
    pub(crate) fn cloned<T: Element>(&self) -> Vec<T> {
        let mut values = Vec::with_capacity(self.num_elements());
        let copied = self.append_to(&mut values);
        debug_assert!(copied.is_ok(), "T must be the dtype");
        values
    }

    /// Converts the elements to `f32`, row-major: rounds doubles and large integers; `true` is 1.
    #[must_use]
    pub fn to_f32_vec(&self) -> Vec<f32> {
        with_element!(self.dtype, T => self.cloned::<T>().into_iter().map(T::to_f32).collect())
    }

    /// Copies the elements out as little-endian bytes, row-major.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size_bytes());
        self.write_bytes(&mut bytes).map_or_else(|_| Vec::new(), |()| bytes)
    }

    /// Returns the size of the elements of this view in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.num_elements() * self.dtype.size_bytes()
    }

    /// Writes the elements as little-endian bytes, row-major.
    ///
    /// # Errors
    /// `Io` if `writer` fails.
    pub fn write_bytes(&self, writer: &mut dyn Write) -> Result<()> {
        with_element!(self.dtype, T => {
            let elements = self.elements::<T>()?;
            self.runs().try_for_each(|run| Ok(writer.write_all(T::as_bytes(&elements[run]))?))
        })
    }

    /// Returns this tensor if it is dense, else a dense copy.
    #[must_use]
    pub fn contiguous(&self) -> Self {
        if self.is_contiguous() { self.clone() } else { self.copied() }
    }

    /// Returns a dense copy with its own storage.
    #[must_use]
    pub fn copied(&self) -> Self {
        // Nothing writes to a tensor of a GPU, so its storage can be shared.
        if self.compute() != Compute::Cpu {
            return self.clone();
        }
        let storage = with_element!(self.dtype, T => T::store(self.cloned::<T>().into()));
        Self::over(storage, self.dtype, &self.shape)
    }

    /// Returns [`Tensor::contiguous`], or `OutOfMemory` if there is no memory.
    pub(crate) fn dense(&self) -> Result<Self> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        with_element!(self.dtype, T => self.owned::<T>())
    }

    /// Returns a dense copy on the device of `compute`.
    pub(crate) fn copied_on<T: Element>(&self, compute: Compute) -> Result<Self> {
        let memory = T::memory(&self.storage).ok_or_else(|| wrong_dtype(T::DTYPE.name(), self.dtype))?;
        let elements = self.compute().read(memory)?;
        let mut values = reserved(self.num_elements())?;
        self.runs().for_each(|run| values.extend_from_slice(&elements[run]));
        Self::held(compute.hold(values)?, &self.shape)
    }

    /// Returns a dense copy as `T`.
    fn owned<T: Element>(&self) -> Result<Self> {
        dispatch!(self.compute(), cpu => Self::from_vec(&self.shape, self.to_vec::<T>()?))
    }

    /// Returns the whole storage as `T`.
    pub(crate) fn elements<T: Element>(&self) -> Result<&[T]> {
        match T::memory(&self.storage).map(Memory::view) {
            Some(View::Cpu(elements)) => Ok(elements),
            Some(View::Cuda(_)) => {
                let detail = format!(
                    "a tensor must be on the CPU to read its elements: got one on {}, .to('cpu') copies it",
                    self.device()
                );
                Err(Error::new(ErrorKind::Incompatible, detail))
            }
            None => Err(wrong_dtype(T::DTYPE.name(), self.dtype)),
        }
    }
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.dtype == other.dtype
            && self.shape == other.shape
            && with_element!(self.dtype, T => self.to_vec::<T>() == other.to_vec::<T>())
    }
}

/// Returns row-major strides.
pub fn contiguous_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1_usize; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(shape[dim]);
    }
    strides
}

fn wrong_dtype(want: &str, got: Dtype) -> Error {
    Error::new(ErrorKind::Incompatible, format!("dtype must be {want}: got {}", got.name()))
}

fn not_contiguous(tensor: &Tensor) -> Error {
    let detail =
        format!("tensor must be contiguous: got strides {:?} for shape {:?}", tensor.strides, tensor.shape);
    Error::new(ErrorKind::Incompatible, detail)
}
