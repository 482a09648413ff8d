//! placeholder
use crate::image::Image;
use crate::state::{Memory, Registers};
pub fn frame_address(image: &Image, registers: &Registers, memory: &(impl Memory + ?Sized)) -> Option<u64> {
    let _ = (image, registers, memory);
    None
}
