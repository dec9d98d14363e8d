//! A winner tree over the times of the CPUs' next steps. Of equal times, the lower CPU number wins.

/// A time that is never reached.
pub const NEVER: u64 = u64::MAX;

/// The times of a fixed number of players, with fast access to the earliest.
#[derive(Debug)]
pub struct Clock {
    nr_leaves: usize,
    times: Vec<u64>,
    /// The winner at each inner node. The root has index 1.
    winners: Vec<u32>,
}

impl Clock {
    pub fn new(nr_players: usize) -> Self {
        let nr_leaves = nr_players.next_power_of_two().max(2);
        let mut clock =
            Self { nr_leaves, times: vec![NEVER; nr_leaves], winners: vec![0; nr_leaves] };
        (1..nr_leaves).rev().for_each(|node| clock.play(node));
        clock
    }

    fn winner(&self, node: usize) -> u32 {
        match node.checked_sub(self.nr_leaves) {
            Some(player) => player as u32,
            None => self.winners[node],
        }
    }

    fn play(&mut self, node: usize) {
        let (left, right) = (self.winner(2 * node), self.winner(2 * node + 1));
        let right_wins = self.times[right as usize] < self.times[left as usize];
        self.winners[node] = if right_wins { right } else { left };
    }

    #[inline]
    pub fn set(&mut self, player: usize, time: u64) {
        self.times[player] = time;
        let mut node = (self.nr_leaves + player) / 2;
        while node >= 1 {
            self.play(node);
            node /= 2;
        }
    }

    /// Returns the earliest time and its player.
    #[inline]
    pub fn min(&self) -> (u64, usize) {
        let player = self.winners[1] as usize;
        (self.times[player], player)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_time_wins_and_the_lower_number_of_equals() {
        let mut seed = 7_u64;
        for nr_players in [1, 2, 3, 8, 73] {
            let mut clock = Clock::new(nr_players);
            let mut plain = vec![NEVER; nr_players];
            for _ in 0..500 {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let player = (seed >> 33) as usize % nr_players;
                plain[player] = (seed >> 20) % 16;
                clock.set(player, plain[player]);
                let least = plain.iter().copied().enumerate();
                let (who, time) = least.min_by_key(|&(who, time)| (time, who)).unwrap();
                assert_eq!(clock.min(), (time, who));
            }
        }
    }
}
