# SPDX-License-Identifier: MIT
"""What a club owes and is owed. examples/run.sh coder has a model of code write this file again, with a change."""


class Ledger:
    """Amounts by member, in cents; what a member owes is negative."""

    def __init__(self, members):
        self.balances = {member: 0 for member in members}

    def pay(self, member, amount):
        """A member pays into the club's account."""
        if amount <= 0:
            raise ValueError(f"{member} pays {amount}, expected more than 0")
        self.balances[member] += amount

    def share(self, amount, members):
        """Members share a bill; what does not divide, the first ones carry."""
        each, rest = divmod(amount, len(members))
        for i, member in enumerate(members):
            self.balances[member] -= each + (1 if i < rest else 0)

    def debtors(self):
        """Who owes something, the largest debts first."""
        owing = [(balance, member) for member, balance in self.balances.items() if balance < 0]
        return [member for balance, member in sorted(owing)]


if __name__ == "__main__":
    ledger = Ledger(["Ada", "Ben", "Cleo"])
    ledger.share(10000, ["Ada", "Ben", "Cleo"])
    ledger.pay("Ada", 4000)
    print(ledger.debtors(), ledger.balances)
