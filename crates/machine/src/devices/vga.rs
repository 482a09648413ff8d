//! The VGA adapter in its 80 by 25 text mode.
//!
//! Contract: the registers keep what is written and the status port moves with time; the screen itself is
//! plain memory at 0xb8000, which `Screen::render` turns into text. Source: IBM VGA technical reference
//! (FreeVGA). Not modelled: graphics modes, fonts, palettes on the rendered screen, plane logic.

use serde::{Deserialize, Serialize};
use std::fmt;

pub const COLUMNS: usize = 80;
pub const ROWS: usize = 25;
/// Where the screen's memory begins.
pub const TEXT_BASE: u64 = 0xb_8000;
/// Bytes of memory behind the screen.
pub const TEXT_SIZE: usize = 0x8000;

const CRTC_REGISTERS: usize = 25;
/// Three bytes for each of 256 colours.
const DAC_BYTES: usize = 768;
/// What mode 3 leaves in the CRT controller.
const CRTC_MODE3: [u8; CRTC_REGISTERS] = [
    0x5f, 0x4f, 0x50, 0x82, 0x55, 0x81, 0xbf, 0x1f, 0x00, 0x4f, 0x0d, 0x0e, 0x00, 0x00, 0x00, 0x00, 0x9c,
    0x8e, 0x8f, 0x28, 0x1f, 0x96, 0xb9, 0xa3, 0xff,
];

#[derive(Clone, Hash, Debug, Serialize, Deserialize)]
pub struct Vga {
    crtc_index: u8,
    #[serde(with = "crate::snapshot::array")]
    crtc: [u8; CRTC_REGISTERS],
    sequencer_index: u8,
    sequencer: [u8; 8],
    graphics_index: u8,
    graphics: [u8; 16],
    attribute_index: u8,
    attribute: [u8; 32],
    attribute_data_next: bool,
    misc: u8,
    feature: u8,
    dac_mask: u8,
    dac_read: u16,
    dac_write: u16,
    dac_reading: bool,
    #[serde(with = "crate::snapshot::array")]
    dac: [u8; DAC_BYTES],
}

impl Default for Vga {
    fn default() -> Self {
        let mut vga = Self {
            crtc_index: 0,
            crtc: CRTC_MODE3,
            sequencer_index: 0,
            sequencer: [3, 0, 3, 0, 2, 0, 0, 0],
            graphics_index: 0,
            graphics: [0; 16],
            attribute_index: 0x20,
            attribute: [0; 32],
            attribute_data_next: false,
            misc: 0x67,
            feature: 0,
            dac_mask: 0xff,
            dac_read: 0,
            dac_write: 0,
            dac_reading: false,
            dac: [0; DAC_BYTES],
        };
        vga.graphics[5] = 0x10;
        vga.graphics[6] = 0x0e;
        for (index, value) in
            [0, 1, 2, 3, 4, 5, 0x14, 7, 0x38, 0x39, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e, 0x3f].iter().enumerate()
        {
            vga.attribute[index] = *value;
        }
        vga.attribute[0x10] = 0x0c;
        vga.attribute[0x12] = 0x0f;
        vga.attribute[0x13] = 0x08;
        vga
    }
}

impl Vga {
    pub fn claims(port: u16) -> bool {
        matches!(port, 0x3c0..=0x3cf | 0x3d4 | 0x3d5 | 0x3da)
    }

    /// The cell at which the display begins.
    pub fn start(&self) -> u16 {
        u16::from_be_bytes([self.crtc[0x0c], self.crtc[0x0d]])
    }

    /// The cell under the cursor.
    pub fn cursor(&self) -> u16 {
        u16::from_be_bytes([self.crtc[0x0e], self.crtc[0x0f]])
    }

    pub fn set_cursor(&mut self, cell: u16) {
        let [high, low] = cell.to_be_bytes();
        self.crtc[0x0e] = high;
        self.crtc[0x0f] = low;
    }

    pub fn set_cursor_shape(&mut self, start: u8, end: u8) {
        self.crtc[0x0a] = start;
        self.crtc[0x0b] = end;
    }

    /// `micros` is device time; the display draws 70 frames a second.
    pub fn port_read(&mut self, port: u16, micros: u64) -> u8 {
        match port {
            0x3c0 => self.attribute_index,
            0x3c1 => self.attribute[usize::from(self.attribute_index & 0x1f)],
            0x3c2 => 0x10,
            0x3c4 => self.sequencer_index,
            0x3c5 => self.sequencer[usize::from(self.sequencer_index & 7)],
            0x3c6 => self.dac_mask,
            0x3c7 if self.dac_reading => 3,
            0x3c8 => (self.dac_write / 3) as u8,
            0x3c9 => {
                let value = self.dac[usize::from(self.dac_read)];
                self.dac_read = (self.dac_read + 1) % DAC_BYTES as u16;
                value
            }
            0x3ca => self.feature,
            0x3cc => self.misc,
            0x3ce => self.graphics_index,
            0x3cf => self.graphics[usize::from(self.graphics_index & 15)],
            0x3d4 => self.crtc_index,
            0x3d5 => self.crtc.get(usize::from(self.crtc_index)).copied().unwrap_or(0),
            0x3da => {
                self.attribute_data_next = false;
                let in_frame = micros % 14_268;
                let vertical = in_frame >= 12_711;
                let horizontal = in_frame % 32 >= 26;
                u8::from(vertical || horizontal) | u8::from(vertical) << 3
            }
            _ => 0,
        }
    }

    pub fn port_write(&mut self, port: u16, value: u8) {
        match port {
            0x3c0 => {
                if self.attribute_data_next {
                    self.attribute[usize::from(self.attribute_index & 0x1f)] = value;
                } else {
                    self.attribute_index = value & 0x3f;
                }
                self.attribute_data_next = !self.attribute_data_next;
            }
            0x3c2 => self.misc = value,
            0x3c4 => self.sequencer_index = value,
            0x3c5 => self.sequencer[usize::from(self.sequencer_index & 7)] = value,
            0x3c6 => self.dac_mask = value,
            0x3c7 => {
                self.dac_reading = true;
                self.dac_read = u16::from(value) * 3;
            }
            0x3c8 => {
                self.dac_reading = false;
                self.dac_write = u16::from(value) * 3;
            }
            0x3c9 => {
                self.dac[usize::from(self.dac_write)] = value & 0x3f;
                self.dac_write = (self.dac_write + 1) % DAC_BYTES as u16;
            }
            0x3ce => self.graphics_index = value,
            0x3cf => self.graphics[usize::from(self.graphics_index & 15)] = value,
            0x3d4 => self.crtc_index = value & 0x3f,
            0x3d5 => {
                let locked = self.crtc[0x11] & 0x80 != 0;
                let index = usize::from(self.crtc_index);
                match self.crtc.get_mut(index) {
                    Some(_) if locked && index < 7 => {}
                    Some(register) if locked && index == 7 => *register = *register & !0x10 | value & 0x10,
                    Some(register) => *register = value,
                    None => {}
                }
            }
            0x3da => self.feature = value,
            _ => {}
        }
    }
}

/// What the 80 by 25 screen shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Screen {
    cells: Vec<u8>,
}

impl Screen {
    /// `text` is the memory at `TEXT_BASE`, `start` the first displayed cell.
    pub fn render(text: &[u8], start: u16) -> Self {
        let cell =
            |index: usize| text.get((usize::from(start) + index) * 2 % TEXT_SIZE).copied().unwrap_or(0);
        Self { cells: (0..COLUMNS * ROWS).map(cell).collect() }
    }

    /// One row as text, without trailing blanks; characters beyond ASCII follow code page 437.
    pub fn row(&self, row: usize) -> String {
        let cells = &self.cells[row * COLUMNS..(row + 1) * COLUMNS];
        let text: String = cells.iter().map(|&byte| character(byte)).collect();
        text.trim_end().to_owned()
    }

    pub fn rows(&self) -> impl Iterator<Item = String> + '_ {
        (0..ROWS).map(|row| self.row(row))
    }
}

impl fmt::Display for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = (0..ROWS).rev().find(|&row| !self.row(row).is_empty());
        (0..last.map_or(0, |last| last + 1)).try_for_each(|row| writeln!(f, "{}", self.row(row)))
    }
}

/// The glyphs of code page 437 above ASCII, in order.
const HIGH_GLYPHS: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■ ";
const LOW_GLYPHS: &str = " ☺☻♥♦♣♠•◘○◙♂♀♪♫☼►◄↕‼¶§▬↨↑↓→←∟↔▲▼";

fn character(byte: u8) -> char {
    match byte {
        0..=31 => LOW_GLYPHS.chars().nth(usize::from(byte)).unwrap_or(' '),
        32..=126 => char::from(byte),
        127 => '⌂',
        _ => HIGH_GLYPHS.chars().nth(usize::from(byte - 128)).unwrap_or(' '),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_cursor() {
        let mut vga = Vga::default();
        for (index, value) in [(14, 0x07), (15, 0xcf)] {
            vga.port_write(0x3d4, index);
            vga.port_write(0x3d5, value);
            assert_eq!(vga.port_read(0x3d5, 0), value);
        }
        assert_eq!(vga.cursor(), 1999);
    }

    #[test]
    fn attribute_port_alternates_until_the_status_is_read() {
        let mut vga = Vga::default();
        vga.port_write(0x3c0, 0x11);
        vga.port_read(0x3da, 0);
        vga.port_write(0x3c0, 0x12);
        vga.port_write(0x3c0, 0x55);
        assert_eq!(vga.port_read(0x3c1, 0), 0x55);
    }

    #[test]
    fn retrace_comes_and_goes() {
        let mut vga = Vga::default();
        assert_eq!(vga.port_read(0x3da, 0) & 8, 0);
        assert_eq!(vga.port_read(0x3da, 13_000) & 9, 9);
    }

    #[test]
    fn renders_text() {
        let mut memory = vec![0; TEXT_SIZE];
        for (index, byte) in b"Booting \xb3".iter().enumerate() {
            memory[160 + 2 * index] = *byte;
        }
        let screen = Screen::render(&memory, 0);
        assert_eq!((screen.row(0), screen.row(1)), (String::new(), "Booting │".to_owned()));
        assert_eq!(Screen::render(&memory, 80).row(0), "Booting │");
        assert_eq!(screen.to_string(), "\nBooting │\n");
    }
}
