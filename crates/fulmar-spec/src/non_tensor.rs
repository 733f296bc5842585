//! Specs of texts and other JSON values.

use fulmar_core::{Error, ErrorKind, Result, num_elements};
use fulmar_tensor::{Entry, NonTensor};
use serde_json::Value;

use crate::leaf::check_elements;
use crate::shape::Shape;

/// Any JSON value; draws return the example.
#[derive(Debug, Clone, PartialEq)]
pub struct NonTensorSpec {
    shape: Shape,
    example: Value,
    batched: bool,
}

impl NonTensorSpec {
    /// Makes a spec; `batched` gives one value for each element of `shape`, otherwise one is shared.
    ///
    /// # Errors
    /// `LimitExceeded` if `shape` has too many dimensions.
    pub fn new(shape: impl Into<Shape>, example: Value, batched: bool) -> Result<Self> {
        let shape = shape.into();
        num_elements(&shape.sizes())?;
        Ok(Self { shape, example, batched })
    }

    /// Returns the dimensions of the batch.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the value that draws return.
    #[must_use]
    pub const fn example_data(&self) -> &Value {
        &self.example
    }

    /// Returns whether there is one value for each element.
    #[must_use]
    pub const fn batched(&self) -> bool {
        self.batched
    }

    pub(crate) fn with_shape(&self, shape: Shape) -> Self {
        Self { shape, ..self.clone() }
    }

    pub(crate) fn check(&self, value: &Entry) -> Result<()> {
        let Entry::NonTensor(values) = value else {
            let detail = format!("value must be a JSON value: got {}", value.kind());
            return Err(Error::new(ErrorKind::Incompatible, detail));
        };
        match values.shape() {
            Some(shape) if !self.shape.ends(shape) => {
                let detail = format!("shape must end with {}: got {shape:?}", self.shape);
                Err(Error::new(ErrorKind::ShapeMismatch, detail))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn example(&self, batch: &[usize]) -> Result<Entry> {
        if !self.batched {
            return Ok(NonTensor::shared(self.example.clone()).into());
        }
        let shape = [batch, &self.shape.sizes()].concat();
        let len = num_elements(&shape)?;
        check_elements(len)?;
        NonTensor::each(&shape, vec![self.example.clone(); len]).map(Entry::NonTensor)
    }
}
