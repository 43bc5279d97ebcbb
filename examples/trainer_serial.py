"""A small GPT-2 of transformers that learns which token follows which."""

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

TOKENS, LENGTH, TEXTS, TRAINED = 12, 24, 3500, 3000

torch.manual_seed(0)
follows = torch.softmax(2 * torch.randn(TOKENS, TOKENS), 1)
texts = torch.randint(TOKENS, (TEXTS, LENGTH))
for place in range(1, LENGTH):
    texts[:, place] = torch.multinomial(follows[texts[:, place - 1]], 1)[:, 0]


class Texts(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, n):
        return {"input_ids": texts[self.rows[n]], "labels": texts[self.rows[n]]}


ends = dict(bos_token_id=0, eos_token_id=0)
config = GPT2Config(vocab_size=TOKENS, n_positions=LENGTH, n_embd=32, n_layer=1, n_head=2, **ends)
options = dict(num_train_epochs=4, learning_rate=4e-3, per_device_train_batch_size=16, disable_tqdm=True)
args = TrainingArguments("build/trainer", use_cpu=True, logging_strategy="epoch", save_strategy="epoch", **options)
rows, tested = range(TRAINED), range(TRAINED, TEXTS)
trainer = Trainer(
    GPT2LMHeadModel(config), args, train_dataset=Texts(rows), eval_dataset=Texts(tested)
)
trainer.train()
loss = trainer.evaluate()["eval_loss"]
print(f"test loss {loss:.4f}")
