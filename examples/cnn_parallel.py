"""A convolutional network of torch that tells the directions of lines in noisy pictures. Each rank has a part."""

import torch
from torch import nn

import malt

PICTURES, TRAINED, SIDE, BATCH, EPOCHS = 3000, 2000, 12, 20, 3

torch.manual_seed(0)
across = torch.arange(SIDE).float() - SIDE / 2
y = torch.randint(4, (PICTURES,))
angle = y * torch.pi / 4
shift = 6 * torch.rand(PICTURES) - 3
place = (
    torch.cos(angle)[:, None, None] * across + torch.sin(angle)[:, None, None] * across[:, None] - shift[:, None, None]
)
X = (torch.exp(-(place**2)) + 0.4 * torch.randn(PICTURES, SIDE, SIDE))[:, None]

model = nn.Sequential(
    nn.Conv2d(1, 8, 5), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 4)
)
malt.seed(0)  # each rank draws numbers of its own from here on, as for dropout
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = malt.torch.Optimizer(optimizer, model)
for epoch in range(EPOCHS):
    order = torch.from_numpy(malt.shard(TRAINED, shuffle=True, seed=epoch))
    for rows in order.split(BATCH):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
        optimizer.step()
optimizer.finish()

model.eval()
right = model(X[TRAINED:]).argmax(1) == y[TRAINED:]
if malt.lowest():
    print(f"test accuracy {right.float().mean():.4f}")
