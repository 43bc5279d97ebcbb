"""A network of Lightning that tells the arms of a noisy spiral apart."""

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

POINTS, TRAINED, EPOCHS = 5000, 4000, 6

torch.manual_seed(0)
y = torch.randint(3, (POINTS,))
radius = torch.rand(POINTS)
angle = 4 * radius + y * 2 * torch.pi / 3 + 0.4 * torch.randn(POINTS)
y = torch.where(torch.rand(POINTS) < 1 / 3, torch.randint(3, (POINTS,)), y)
X = radius[:, None] * torch.stack((torch.sin(angle), torch.cos(angle)), 1)
trained, tested = TensorDataset(X[:TRAINED], y[:TRAINED]), TensorDataset(X[TRAINED:], y[TRAINED:])


class Arms(LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 3))

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self.network(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("test_loss", nn.functional.cross_entropy(self.network(batch[0]), batch[1]), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


sampler = RandomSampler(trained)
options = dict(accelerator="cpu", devices=1, max_epochs=EPOCHS, enable_progress_bar=False, enable_model_summary=False)
trainer = Trainer(logger=CSVLogger("build", "lightning"), **options)
trainer.fit(Arms(), DataLoader(trained, 20, sampler=sampler), DataLoader(tested, 1000))
print(f"test loss {trainer.callback_metrics['test_loss']:.4f}")
