/** Dtypes of PyTorch by name, as Fulmar names them. */

export const DTYPES = {
  float64: 'f64',
  float32: 'f32',
  float16: 'f16',
  bfloat16: 'bf16',
  int64: 'i64',
  int32: 'i32',
  int16: 'i16',
  int8: 'i8',
  uint8: 'u8',
  uint32: 'u32',
  bool: 'bool',
}
