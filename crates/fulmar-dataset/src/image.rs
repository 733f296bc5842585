//! PNG and JPEG images as bytes of three channels.

use std::io::Cursor;

use fulmar_core::limits::{IMAGE_EXPANSION_MAX, IMAGE_SIDE_MAX};
use fulmar_core::{Error, ErrorKind, Result};
use png::{ColorType, Transformations};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Height and width in pixels.
pub(crate) type Size = [usize; 2];

/// An image whose header is read: its size is known before memory is taken.
pub(crate) enum Image<'a> {
    Png(Box<png::Reader<Cursor<&'a [u8]>>>),
    Jpeg(Box<JpegDecoder<ZCursor<&'a [u8]>>>, Size),
}

impl<'a> Image<'a> {
    /// Reads the header of a PNG or a JPEG.
    ///
    /// # Errors
    /// `Incompatible` for bytes of neither; `Corrupt` for a damaged header; `LimitExceeded` for sides of more than [`IMAGE_SIDE_MAX`],
    /// or more than [`IMAGE_EXPANSION_MAX`] bytes of pixels for each of the file.
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        let image = match bytes {
            [0x89, b'P', b'N', b'G', ..] => {
                let mut decoder = png::Decoder::new(Cursor::new(bytes));
                decoder.set_transformations(Transformations::normalize_to_color8());
                Self::Png(Box::new(decoder.read_info().map_err(damaged)?))
            }
            [0xff, 0xd8, ..] => open_jpeg(bytes)?,
            _ => {
                return Err(Error::new(
                    ErrorKind::Incompatible,
                    "an image must be PNG or JPEG: it is neither",
                ));
            }
        };
        let [height, width] = image.size();
        if height.max(width) > IMAGE_SIDE_MAX {
            let detail =
                format!("an image must have at most {IMAGE_SIDE_MAX} pixels a side: got {height} x {width}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let num_bytes_max = bytes.len().saturating_mul(IMAGE_EXPANSION_MAX);
        if 3 * height * width > num_bytes_max {
            let detail = format!(
                "an image of {} bytes must have at most {num_bytes_max} bytes of pixels: got {height} x {width} pixels",
                bytes.len()
            );
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        Ok(image)
    }

    /// Returns the height and the width.
    pub fn size(&self) -> Size {
        match self {
            Self::Png(reader) => [reader.info().height as usize, reader.info().width as usize],
            Self::Jpeg(_, size) => *size,
        }
    }

    /// Appends the pixels as `[3, H, W]`. A channel of grey becomes all three; transparency is left out.
    ///
    /// # Errors
    /// `Corrupt` for damaged pixels.
    pub fn append_to(self, pixels: &mut Vec<u8>) -> Result<()> {
        let (rows, num_channels) = match self {
            Self::Png(mut reader) => {
                let mut rows = vec![0; reader.output_buffer_size().unwrap_or(0)];
                let frame = reader.next_frame(&mut rows).map_err(damaged)?;
                rows.truncate(frame.buffer_size());
                (rows, channels(frame.color_type))
            }
            Self::Jpeg(mut decoder, _) => (decoder.decode().map_err(damaged)?, 3),
        };
        for channel in 0..3 {
            // Grey has one channel, or two with transparency.
            let at = if num_channels < 3 { 0 } else { channel };
            pixels.extend(rows.chunks_exact(num_channels).map(|pixel| pixel[at]));
        }
        Ok(())
    }
}

fn open_jpeg(bytes: &[u8]) -> Result<Image<'_>> {
    let options = DecoderOptions::default()
        .jpeg_set_out_colorspace(ColorSpace::RGB)
        .set_max_width(IMAGE_SIDE_MAX)
        .set_max_height(IMAGE_SIDE_MAX)
        .set_strict_mode(true);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(damaged)?;
    match decoder.info() {
        Some(info) => Ok(Image::Jpeg(Box::new(decoder), [usize::from(info.height), usize::from(info.width)])),
        None => Err(Error::new(ErrorKind::Corrupt, "an image must have a size: it has none")),
    }
}

fn channels(color: ColorType) -> usize {
    match color {
        ColorType::Grayscale | ColorType::Indexed => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgb => 3,
        ColorType::Rgba => 4,
    }
}

fn damaged(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Corrupt, format!("an image must be whole: got {error}")).because(error)
}
