//! INT 10h: the text screen.

use trace::PhysAddr;

use super::Service;
use crate::devices::vga::{COLUMNS, ROWS, TEXT_BASE};
use crate::x86::state::{Seg, reg};

const PLAIN: u8 = 0x07;
/// Bytes of one page of the screen.
const PAGE: u64 = 0x1000;
const LAST_ROW: u8 = ROWS as u8 - 1;
const LAST_COLUMN: u8 = COLUMNS as u8 - 1;

impl Service<'_> {
    pub(super) fn video(&mut self) {
        match self.high(reg::AX) {
            0x00 => {
                let keep = self.low(reg::AX) & 0x80 != 0;
                self.set_bda8(0x49, self.low(reg::AX) & 0x7f);
                if !keep {
                    self.memory.write(PhysAddr(TEXT_BASE), &[b' ', PLAIN].repeat(COLUMNS * ROWS));
                }
                self.set_bda8(0x62, 0);
                (0..8).for_each(|page| self.move_cursor(page, 0, 0));
                self.set8(reg::AX, 0x30);
            }
            0x01 => {
                let shape = self.get16(reg::CX);
                self.set_bda16(0x60, shape);
                self.board.vga_mut().set_cursor_shape((shape >> 8) as u8, shape as u8);
            }
            0x02 => self.move_cursor(self.high(reg::BX), self.high(reg::DX), self.low(reg::DX)),
            0x03 => {
                let (row, column) = self.cursor(self.high(reg::BX));
                self.set16(reg::DX, u16::from_be_bytes([row, column]));
                self.set16(reg::CX, self.bda16(0x60));
            }
            0x05 => self.set_bda8(0x62, self.low(reg::AX) & 7),
            0x06 | 0x07 => {
                let up = self.high(reg::AX) == 0x06;
                let [top, left] = self.get16(reg::CX).to_be_bytes();
                let [bottom, right] = self.get16(reg::DX).to_be_bytes();
                self.scroll(up, self.low(reg::AX), self.high(reg::BX), (top, left), (bottom, right));
            }
            0x08 => {
                let page = self.high(reg::BX);
                let (row, column) = self.cursor(page);
                let cell = self.memory.read_u16(self.cell(page, row, column));
                self.set16(reg::AX, cell);
            }
            function @ (0x09 | 0x0a) => {
                let page = self.high(reg::BX);
                let (row, column) = self.cursor(page);
                let attribute = (function == 0x09).then(|| self.low(reg::BX));
                let first = usize::from(row) * COLUMNS + usize::from(column);
                let end = (first + usize::from(self.get16(reg::CX))).min(COLUMNS * ROWS);
                for index in first..end {
                    let at = PhysAddr(self.page_base(page) + 2 * index as u64);
                    self.put_cell(at, self.low(reg::AX), attribute);
                }
            }
            0x0e => self.teletype(self.low(reg::AX), None),
            0x0f => {
                self.set8(reg::AX, self.bda8(0x49));
                self.set8_high(reg::AX, COLUMNS as u8);
                self.set8_high(reg::BX, self.bda8(0x62));
            }
            // The font: sixteen lines a character.
            0x11 if self.low(reg::AX) == 0x30 => {
                self.set16(reg::CX, 16);
                self.set8(reg::DX, LAST_ROW);
            }
            0x12 if self.low(reg::BX) == 0x10 => {
                self.set16(reg::BX, 0x0003);
                self.set16(reg::CX, 0x0009);
            }
            0x13 => self.write_string(),
            0x1a if self.low(reg::AX) == 0 => {
                self.set8(reg::AX, 0x1a);
                self.set16(reg::BX, 0x0008);
            }
            // VESA is not there.
            0x4f => self.set16(reg::AX, 0x0100),
            _ => {}
        }
    }

    fn page_base(&self, page: u8) -> u64 {
        TEXT_BASE + PAGE * u64::from(page & 7)
    }

    fn cell(&self, page: u8, row: u8, column: u8) -> PhysAddr {
        PhysAddr(self.page_base(page) + 2 * (u64::from(row) * COLUMNS as u64 + u64::from(column)))
    }

    fn put_cell(&mut self, at: PhysAddr, character: u8, attribute: Option<u8>) {
        self.memory.write_u8(at, character);
        if let Some(attribute) = attribute {
            self.memory.write_u8(at.offset(1), attribute);
        }
    }

    /// Row and column of a page's cursor.
    fn cursor(&self, page: u8) -> (u8, u8) {
        let [column, row] = self.bda16(0x50 + 2 * u64::from(page & 7)).to_le_bytes();
        (row.min(LAST_ROW), column.min(LAST_COLUMN))
    }

    fn move_cursor(&mut self, page: u8, row: u8, column: u8) {
        self.set_bda16(0x50 + 2 * u64::from(page & 7), u16::from_be_bytes([row, column]));
        if page == self.bda8(0x62) {
            let start = u16::from(page & 7) * (PAGE / 2) as u16;
            self.board.vga_mut().set_cursor(start + u16::from(row) * COLUMNS as u16 + u16::from(column));
        }
    }

    fn scroll(
        &mut self,
        up: bool,
        lines: u8,
        attribute: u8,
        (top, left): (u8, u8),
        (bottom, right): (u8, u8),
    ) {
        let (bottom, right) = (bottom.min(LAST_ROW), right.min(LAST_COLUMN));
        if top > bottom || left > right {
            return;
        }
        let page = self.bda8(0x62);
        let height = bottom - top + 1;
        let lines = if lines == 0 || lines > height { height } else { lines };
        for step in 0..height {
            let row = if up { top + step } else { bottom - step };
            for column in left..=right {
                let value = if step + lines >= height {
                    u16::from_le_bytes([b' ', attribute])
                } else {
                    let from = if up { row + lines } else { row - lines };
                    self.memory.read_u16(self.cell(page, from, column))
                };
                let at = self.cell(page, row, column);
                self.memory.write_u16(at, value);
            }
        }
    }

    pub(super) fn teletype(&mut self, character: u8, attribute: Option<u8>) {
        let page = self.bda8(0x62);
        let (mut row, mut column) = self.cursor(page);
        match character {
            0x07 => return,
            0x08 => column = column.saturating_sub(1),
            b'\r' => column = 0,
            b'\n' => row += 1,
            _ => {
                let at = self.cell(page, row, column);
                self.put_cell(at, character, attribute);
                column += 1;
                if column > LAST_COLUMN {
                    (row, column) = (row + 1, 0);
                }
            }
        }
        if row > LAST_ROW {
            row = LAST_ROW;
            let attribute = self.memory.read_u8(self.cell(page, row, 0).offset(1));
            self.scroll(true, 1, attribute, (0, 0), (LAST_ROW, LAST_COLUMN));
        }
        self.move_cursor(page, row, column);
    }

    fn write_string(&mut self) {
        let mode = self.low(reg::AX);
        let page = self.high(reg::BX);
        let saved = self.cursor(page);
        let mut offset = self.get16(reg::BP);
        let [row, column] = self.get16(reg::DX).to_be_bytes();
        self.move_cursor(page, row, column);
        for _ in 0..self.get16(reg::CX) {
            let mut next = |service: &Self| {
                let byte = service.memory.read_u8(service.far(Seg::Es, offset));
                offset = offset.wrapping_add(1);
                byte
            };
            let character = next(self);
            let attribute = if mode & 2 != 0 { next(self) } else { self.low(reg::BX) };
            self.teletype(character, Some(attribute));
        }
        if mode & 1 == 0 {
            self.move_cursor(page, saved.0, saved.1);
        }
    }
}
