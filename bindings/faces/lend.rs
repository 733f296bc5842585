// How classes of a face give their values to each other, once for Node and for WebAssembly.

/// Gives a copy of the value: values are reference-counted, so this is cheap.
pub trait Share<T> {
    fn share(&self) -> fulmar::core::Result<T>;
}

/// Lends the value to a function that may change it in place.
pub trait Lend<T> {
    fn lend<R>(&self, body: impl FnOnce(&mut T) -> fulmar::core::Result<R>) -> fulmar::core::Result<R>;
}
