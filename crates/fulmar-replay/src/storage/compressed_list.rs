//! One dictionary for each row, with compressed tensors.

use fulmar_core::{Device, Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, Tensor, TensorDict};

use crate::row::{check_count, check_written, checked_capacity, grown_len};
use crate::storage::{Storage, checked_device, read_on};

/// Stores each tensor of each item in zlib's format and stacks the items on reading, as
/// [`ListStorage`](crate::ListStorage) does.
///
/// # Examples
/// ```
/// use fulmar_replay::{CompressedListStorage, Storage};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut storage = CompressedListStorage::new(4, 3)?;
/// let mut item = TensorDict::new(&[])?;
/// item.set("frame", Tensor::from_vec(&[10_000], vec![7_u8; 10_000])?)?;
/// storage.set(&[0], &item.unsqueeze(0)?)?;
/// assert!(storage.compressed_bytes() < 100);
/// assert_eq!(storage.get(&[0])?.tensor("frame")?.to_vec::<u8>()?, [7; 10_000]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct CompressedListStorage {
    capacity: [usize; 1],
    device: Device,
    level: u8,
    rows: Vec<Packed>,
    revision: u64,
}

/// An item: its tensors, and its other entries unchanged.
#[derive(Debug, Clone)]
struct Packed {
    others: TensorDict,
    tensors: Vec<(Key, PackedTensor)>,
}

#[derive(Debug, Clone)]
struct PackedTensor {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl CompressedListStorage {
    /// Returns a storage of `capacity` items with compression `level` 0 (none) to 9.
    ///
    /// # Errors
    /// `OutOfRange` if `capacity` is 0 or `level` above 9, `LimitExceeded` if `capacity` is above the limit of a buffer.
    pub fn new(capacity: usize, level: u8) -> Result<Self> {
        if level > 9 {
            return Err(Error::new(ErrorKind::OutOfRange, format!("level must be <= 9: got {level}")));
        }
        let capacity = [checked_capacity(capacity)?];
        Ok(Self { capacity, device: Device::Cpu, level, rows: Vec::new(), revision: 0 })
    }

    /// Sets the device of read items; the compressed bytes stay in main memory.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if there is no such device.
    pub fn on(self, device: Device) -> Result<Self> {
        Ok(Self { device: checked_device(device)?, ..self })
    }

    /// Returns the size of all compressed tensors in bytes.
    #[must_use]
    pub fn compressed_bytes(&self) -> usize {
        self.rows.iter().flat_map(|row| &row.tensors).map(|(_, tensor)| tensor.bytes.len()).sum()
    }
}

impl Storage for CompressedListStorage {
    fn shape(&self) -> &[usize] {
        &self.capacity
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let len = grown_len(self.rows.len(), self.capacity[0], rows)?;
        check_count(rows, items)?;
        let packed = (0..rows.len()).map(|at| Packed::new(&items.index(at)?, self.level));
        let packed = packed.collect::<Result<Vec<_>>>()?;
        if let Some(any) = packed.first().filter(|_| len > self.rows.len()) {
            self.rows.resize(len, any.clone());
        }
        rows.iter().zip(packed).for_each(|(row, item)| self.rows[*row] = item);
        self.revision += 1;
        Ok(())
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        check_written(rows, self.rows.len())?;
        if rows.is_empty() {
            return TensorDict::new(&[0]);
        }
        let items = rows.iter().map(|row| self.rows[*row].unpacked()).collect::<Result<Vec<_>>>()?;
        read_on(TensorDict::stack(&items, 0)?, self.device)
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.revision += 1;
    }

    fn revision(&self) -> u64 {
        self.revision
    }
}

impl Packed {
    fn new(item: &TensorDict, level: u8) -> Result<Self> {
        let mut tensors = Vec::new();
        for key in item.leaf_keys() {
            if let Entry::Tensor(tensor) = item.entry(key.clone())? {
                let bytes = miniz_oxide::deflate::compress_to_vec_zlib(&tensor.to_bytes(), level);
                tensors.push((
                    key,
                    PackedTensor { dtype: tensor.dtype(), shape: tensor.shape().to_vec(), bytes },
                ));
            }
        }
        let keys: Vec<Key> = tensors.iter().map(|(key, _)| key.clone()).collect();
        Ok(Self { others: item.exclude(&keys).apply(&|tensor| Ok(tensor.copied()))?, tensors })
    }

    fn unpacked(&self) -> Result<TensorDict> {
        let mut item = self.others.clone();
        for (key, tensor) in &self.tensors {
            item.set(key.clone(), tensor.unpacked().map_err(|error| error.at(key))?)?;
        }
        Ok(item)
    }
}

impl PackedTensor {
    fn unpacked(&self) -> Result<Tensor> {
        let len = fulmar_core::num_elements(&self.shape)? * self.dtype.size_bytes();
        let bytes = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(&self.bytes, len)
            .map_err(|error| Error::new(ErrorKind::Corrupt, format!("bytes must be zlib's: got {error}")))?;
        Tensor::from_bytes(self.dtype, &self.shape, &bytes)
    }
}
