//! A machine as a file.
//!
//! Contract: `read(write(machine))` is a machine with the same state hash that goes on in the same way. Pages
//! of zeros are left out, the rest is compressed in blocks of a mebibyte. Every byte is covered by a hash, so
//! a damaged or truncated file is refused; a file of another version of the format or of the machine's layout
//! is refused; and a file belongs to one image (kernel, initial file system, command line, board), named by a
//! number that the caller computes.
//!
//! Layout, little-endian: magic, version, layout, image, bytes of memory, number of blocks, hash of all that;
//! then blocks, each its packed length, its length and its hash in front. The first block is processors and
//! devices, the others are frame numbers and pages. Not kept: decoded code, which is derived. Output that the
//! caller has not taken yet is kept.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, Write};
use trace::{CpuId, PhysAddr};

use crate::Machine;
use crate::board::{Board, BoardConfig, CPUS_MAX};
use crate::hash::hash_bytes;
use crate::memory::{Memory, PAGE};
use crate::transactions::Transactions;
use crate::x86::state::Cpu;

const MAGIC: &[u8; 8] = b"ROCKSNAP";
const VERSION: u32 = 1;
/// The most memory that a machine can have: above it are the devices.
const MEMORY_MAX: u64 = 4 << 30;
const PAGES_PER_BLOCK: usize = 256;
const HEADER: usize = 8 + 4 + 8 + 8 + 8 + 4 + 8;

/// Why a file is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotError {
    NotASnapshot,
    /// The file was written by another version.
    Version,
    /// The file belongs to another kernel, file system, command line or board.
    Image,
    Truncated,
    Damaged,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotASnapshot => "this is not a snapshot; write one with --save",
            Self::Version => "this snapshot was written by another version of Rockfall; write it anew with --save",
            Self::Image => {
                "this snapshot was taken of another kernel, image, command line or machine; give the same ones, or write it anew with --save"
            }
            Self::Truncated => "this snapshot ends too early; write it anew with --save",
            Self::Damaged => "this snapshot is damaged; write it anew with --save",
        })
    }
}

impl std::error::Error for SnapshotError {}

/// The state of a machine except its memory.
#[derive(Serialize, Deserialize)]
struct State {
    cpus: Vec<Cpu>,
    board: Board,
    rom: Vec<(u64, u64)>,
    instructions: u64,
    resume: Option<(CpuId, u64)>,
    held: [Option<u64>; CPUS_MAX as usize],
    transactions: Transactions,
}

fn packed(state: &State) -> Vec<u8> {
    postcard::to_allocvec(state).expect("plain data in memory can be written down")
}

/// A number that changes with the layout of the state: the hash of a machine that has not run.
fn layout() -> u64 {
    let machine = Machine::new(BoardConfig::default());
    hash_bytes(&packed(&machine.state()))
}

impl Machine {
    fn state(&self) -> State {
        State {
            cpus: self.cpus.clone(),
            board: self.board.clone(),
            rom: self.memory.rom().to_vec(),
            instructions: self.instructions(),
            resume: self.resume(),
            held: self.held(),
            transactions: self.transactions.clone(),
        }
    }
}

fn put_block(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let packed = lz4_flex::block::compress(bytes);
    out.write_all(&(packed.len() as u32).to_le_bytes())?;
    out.write_all(&(bytes.len() as u32).to_le_bytes())?;
    out.write_all(&hash_bytes(&packed).to_le_bytes())?;
    out.write_all(&packed)
}

/// Writes a machine to `out`; `image` names what it was booted from.
pub fn write(machine: &Machine, image: u64, out: &mut impl Write) -> io::Result<()> {
    let pages: Vec<(u32, &[u8; PAGE])> = machine.memory.pages().collect();
    let mut header = MAGIC.to_vec();
    header.extend(VERSION.to_le_bytes());
    header.extend(layout().to_le_bytes());
    header.extend(image.to_le_bytes());
    header.extend(machine.memory.size().to_le_bytes());
    header.extend((pages.len().div_ceil(PAGES_PER_BLOCK) as u32).to_le_bytes());
    header.extend(hash_bytes(&header).to_le_bytes());
    out.write_all(&header)?;
    put_block(out, &packed(&machine.state()))?;
    let mut block = Vec::new();
    for pages in pages.chunks(PAGES_PER_BLOCK) {
        block.clear();
        block.extend(pages.iter().flat_map(|(frame, _)| frame.to_le_bytes()));
        pages.iter().for_each(|(_, page)| block.extend_from_slice(*page));
        put_block(out, &block)?;
    }
    Ok(())
}

/// The part of a file that is not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], SnapshotError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(SnapshotError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, SnapshotError> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    fn u64(&mut self) -> Result<u64, SnapshotError> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    /// The contents of the next block, whose length is at most `max`.
    fn block(&mut self, max: usize, into: &mut Vec<u8>) -> Result<(), SnapshotError> {
        let (packed, length, hash) = (self.u32()? as usize, self.u32()? as usize, self.u64()?);
        let bytes = self.take(packed)?;
        if length > max || hash_bytes(bytes) != hash {
            return Err(SnapshotError::Damaged);
        }
        into.resize(length, 0);
        match lz4_flex::block::decompress_into(bytes, into) {
            Ok(written) if written == length => Ok(()),
            _ => Err(SnapshotError::Damaged),
        }
    }
}

/// The machine in the file, if it was booted from `image`.
pub fn read(file: &[u8], image: u64) -> Result<Machine, SnapshotError> {
    const STATE_MAX: usize = u32::MAX as usize;
    let mut rest = Rest(file);
    if !file.starts_with(MAGIC) {
        return Err(SnapshotError::NotASnapshot);
    }
    if file.len() < HEADER {
        return Err(SnapshotError::Truncated);
    }
    rest.take(MAGIC.len())?;
    let (version, layout_found, image_found) = (rest.u32()?, rest.u64()?, rest.u64()?);
    let (memory_bytes, blocks) = (rest.u64()?, rest.u32()?);
    if rest.u64()? != hash_bytes(&file[..HEADER - 8]) {
        return Err(SnapshotError::Damaged);
    }
    if (version, layout_found) != (VERSION, layout()) {
        return Err(SnapshotError::Version);
    }
    if image_found != image {
        return Err(SnapshotError::Image);
    }
    if memory_bytes > MEMORY_MAX {
        return Err(SnapshotError::Damaged);
    }
    let mut block = Vec::new();
    rest.block(STATE_MAX, &mut block)?;
    let state: State = postcard::from_bytes(&block).map_err(|_| SnapshotError::Damaged)?;
    if state.cpus.len() != usize::from(state.board.cpus())
        || !(1..=usize::from(CPUS_MAX)).contains(&state.cpus.len())
    {
        return Err(SnapshotError::Damaged);
    }
    let mut memory = Memory::new(memory_bytes);
    for _ in 0..blocks {
        rest.block(PAGES_PER_BLOCK * (4 + PAGE), &mut block)?;
        let pages = block.len() / (4 + PAGE);
        let (frames, bytes) = block.split_at(4 * pages);
        for (frame, page) in frames.chunks_exact(4).zip(bytes.chunks_exact(PAGE)) {
            let frame = u32::from_le_bytes(frame.try_into().expect("four bytes"));
            memory.load(PhysAddr(u64::from(frame) << 12), page);
        }
    }
    if !rest.0.is_empty() {
        return Err(SnapshotError::Damaged);
    }
    for (first, end) in state.rom {
        memory.protect(PhysAddr(first << 12), (end.saturating_sub(first)) << 12);
    }
    Ok(Machine::resumed(
        state.cpus,
        memory,
        state.board,
        state.instructions,
        state.resume,
        state.held,
        state.transactions,
    ))
}

/// Arrays that are too long for serde's own.
pub(crate) mod array {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer, const N: usize>(
        array: &[u8; N],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        array.as_slice().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        deserializer: D,
    ) -> Result<[u8; N], D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        bytes.try_into().map_err(|bytes: Vec<u8>| D::Error::invalid_length(bytes.len(), &"another length"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::disk::Disk;
    use crate::{Events, StopSet};

    /// A machine in the middle of counting, writing to memory as it goes, with a disk that was written to.
    fn machine() -> Machine {
        let disk = Disk::new(vec![7; 5000]);
        let disks = [Some(disk), None, None, None];
        let mut machine =
            Machine::new(BoardConfig { cpus: 2, memory_bytes: 64 << 20, disks, ..BoardConfig::default() });
        assert!(machine.board.disk_mut(0).unwrap().write(3, &[9; 512]));
        machine.memory.load(PhysAddr(0xf_0000), &[1; 16]);
        machine.memory.protect(PhysAddr(0xf_0000), 0x1_0000);
        // inc eax; mov [eax*8 + 0x200000], eax; jmp back
        machine.memory.load(PhysAddr(0x10_0000), &[0x40, 0x89, 0x04, 0xc5, 0, 0, 0x20, 0, 0xeb, 0xf6]);
        let flat = Machine::flat32(1 << 20);
        machine.cpus[0].clone_from(&flat.cpus[0]);
        machine.cpus[0].rip = 0x10_0000;
        go(&mut machine, 30_000);
        machine
    }

    fn go(machine: &mut Machine, instructions: u64) {
        let stop = machine.run(CpuId(0), &StopSet::after(instructions), &mut Events::off());
        assert_eq!(stop, crate::Stop::Budget);
    }

    fn file(machine: &Machine) -> Vec<u8> {
        let mut file = Vec::new();
        write(machine, 42, &mut file).unwrap();
        file
    }

    #[test]
    fn what_is_read_goes_on_like_what_was_written() {
        let mut original = machine();
        let mut copy = read(&file(&original), 42).unwrap();
        assert_eq!(copy.state_hash(), original.state_hash());
        assert_eq!(file(&copy), file(&original));
        go(&mut original, 5_000);
        go(&mut copy, 5_000);
        assert_eq!(copy.state_hash(), original.state_hash());
        copy.memory.write_u8(PhysAddr(0xf_0000), 5);
        assert_eq!(copy.memory.read_u8(PhysAddr(0xf_0000)), 1, "ROM stays ROM");
        assert_eq!(copy.board.disk(0).unwrap().read(3), Some([9; 512]));
    }

    #[test]
    fn every_damage_is_noticed() {
        let good = file(&machine());
        let places = (0..200).chain((200..good.len()).step_by(151)).chain(good.len() - 20..good.len());
        for place in places {
            for change in [0x01, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[place] ^= change;
                assert!(read(&bad, 42).is_err(), "byte {place}");
            }
            assert!(read(&good[..place], 42).is_err(), "cut at {place}");
        }
        assert!(read(&[&good[..], &[0]].concat(), 42).is_err(), "a byte too much");
        assert_eq!(read(&good, 43).map(drop), Err(SnapshotError::Image));
        assert_eq!(read(b"something else entirely", 42).map(drop), Err(SnapshotError::NotASnapshot));
        assert_eq!(read(b"", 42).map(drop), Err(SnapshotError::NotASnapshot));
        assert_eq!(read(&good[..good.len() / 2], 42).map(drop), Err(SnapshotError::Truncated));
    }

    #[test]
    fn another_version_is_told_apart_from_damage() {
        let mut other = file(&machine());
        other[8] += 1;
        let hash = hash_bytes(&other[..HEADER - 8]);
        other[HEADER - 8..HEADER].copy_from_slice(&hash.to_le_bytes());
        assert_eq!(read(&other, 42).map(drop), Err(SnapshotError::Version));
    }
}
