//! A disk image with the sectors written since on top of it.
//!
//! The image is shared by all clones and never changes; what the guest writes lives in an overlay that clones
//! share until one of them writes.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub const SECTOR_SIZE: usize = 512;
pub type Sector = [u8; SECTOR_SIZE];

/// The unchanging bytes of a disk.
#[derive(Debug)]
struct Image {
    bytes: Vec<u8>,
    /// A digest that stands for the bytes in the machine's hash.
    digest: u64,
}

#[derive(Clone, Debug)]
pub struct Disk {
    image: Arc<Image>,
    /// A clone that writes copies which sectors there are, and not what is in them.
    overlay: Arc<BTreeMap<u32, Arc<Sector>>>,
    sectors: u32,
}

impl Hash for Disk {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.image.digest, self.sectors).hash(state);
        self.overlay.hash(state);
    }
}

/// The form in which a disk is saved.
#[derive(Serialize, Deserialize)]
struct Written {
    image: Vec<u8>,
    overlay: Vec<(u32, Vec<u8>)>,
}

impl Serialize for Disk {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let overlay = self.overlay.iter().map(|(sector, data)| (*sector, data.to_vec())).collect();
        Written { image: self.image.bytes.clone(), overlay }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Disk {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Written { image, overlay } = Written::deserialize(deserializer)?;
        let mut disk = Self::new(image);
        for (sector, data) in overlay {
            let fits = Sector::try_from(data).is_ok_and(|data| disk.write(sector, &data));
            if !fits {
                return Err(serde::de::Error::custom("a sector that the disk does not have"));
            }
        }
        Ok(disk)
    }
}

impl Disk {
    /// Heads and sectors per track of the translated geometry.
    pub const HEADS: u32 = 16;
    pub const TRACK: u32 = 63;

    /// A disk of these bytes; a trailing part of a sector is filled with zeros.
    pub fn new(bytes: Vec<u8>) -> Self {
        let sectors = u32::try_from(bytes.len().div_ceil(SECTOR_SIZE)).unwrap_or(u32::MAX);
        // FNV-1a over words: the digest only has to tell images apart.
        let digest = bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |digest: u64, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            (digest ^ u64::from_le_bytes(word)).wrapping_mul(0x100_0000_01b3).rotate_left(17)
        });
        Self { image: Arc::new(Image { bytes, digest }), overlay: Arc::default(), sectors }
    }

    pub fn sectors(&self) -> u32 {
        self.sectors
    }

    pub fn cylinders(&self) -> u32 {
        (self.sectors / (Self::HEADS * Self::TRACK)).clamp(1, 16_383)
    }

    /// A sector; `None` beyond the end.
    pub fn read(&self, sector: u32) -> Option<Sector> {
        if sector >= self.sectors {
            return None;
        }
        if let Some(written) = self.overlay.get(&sector) {
            return Some(**written);
        }
        let mut data = [0; SECTOR_SIZE];
        let start = sector as usize * SECTOR_SIZE;
        let end = (start + SECTOR_SIZE).min(self.image.bytes.len());
        data[..end - start].copy_from_slice(&self.image.bytes[start..end]);
        Some(data)
    }

    /// Writes a sector; `false` beyond the end.
    #[must_use]
    pub fn write(&mut self, sector: u32, data: &Sector) -> bool {
        if sector >= self.sectors {
            return false;
        }
        Arc::make_mut(&mut self.overlay).insert(sector, Arc::new(*data));
        true
    }

    /// Sectors written since the machine started.
    pub fn written(&self) -> usize {
        self.overlay.len()
    }

    /// The linear number of a sector given by cylinder, head and sector (from 1) of the translated geometry.
    pub fn linear(cylinder: u32, head: u32, sector: u32) -> Option<u32> {
        (head < Self::HEADS && (1..=Self::TRACK).contains(&sector))
            .then(|| (cylinder * Self::HEADS + head) * Self::TRACK + sector - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_stay_in_their_clone() {
        let original = Disk::new(vec![7; 1_000]);
        let mut copy = original.clone();
        assert!(copy.write(1, &[9; SECTOR_SIZE]));
        assert_eq!((original.sectors(), original.written(), copy.written()), (2, 0, 1));
        assert_eq!(original.read(1).map(|data| (data[0], data[511])), Some((7, 0)));
        assert_eq!(copy.read(1), Some([9; SECTOR_SIZE]));
        assert_eq!(copy.read(2), None);
        assert!(!copy.write(2, &[0; SECTOR_SIZE]));
    }

    #[test]
    fn geometry() {
        assert_eq!(Disk::linear(0, 0, 1), Some(0));
        assert_eq!(Disk::linear(2, 3, 4), Some((2 * 16 + 3) * 63 + 3));
        assert_eq!(
            (Disk::linear(0, 16, 1), Disk::linear(0, 0, 0), Disk::linear(0, 0, 64)),
            (None, None, None)
        );
    }
}
